/* SPDX-License-Identifier: MIT */
#include "fault.h"

#include "cm_report.h"
#include "ia.h"

#include <stdbool.h>
#include <stdio.h>

#define PATH_ADVICE MDAPL_CM_PATH_ADVICE
#define PEER_ADVICE "The peer's adapter or process took no message for longer than this adapter " \
                    "repeats it (receiver-not-ready retries of the provider): see what that rank " \
                    "has printed"
#define BUG_ADVICE  "No network does this: it is an error of the device, of the provider or of " \
                    "this channel. Please report it, with the output of " \
                    "MPIR_CVAR_DAPL_VERBOSE=2 of both ranks"

const char mdapl_dapl_bug_advice[] = BUG_ADVICE;

/* Rows: DAT_DTO_COMPLETION_STATUS (dat.h, DAT 2.0, 6.8.1). */
static const struct {
    const char *name, *advice;
} dto_status[] = {
    [DAT_DTO_SUCCESS] = { "DAT_DTO_SUCCESS", "" },
    [DAT_DTO_ERR_FLUSHED] = { "DAT_DTO_ERR_FLUSHED", PATH_ADVICE },
    [DAT_DTO_ERR_LOCAL_LENGTH] = { "DAT_DTO_ERR_LOCAL_LENGTH", mdapl_dapl_bug_advice },
    [DAT_DTO_ERR_LOCAL_EP] = { "DAT_DTO_ERR_LOCAL_EP", mdapl_dapl_bug_advice },
    [DAT_DTO_ERR_LOCAL_PROTECTION] = { "DAT_DTO_ERR_LOCAL_PROTECTION", mdapl_dapl_bug_advice },
    [DAT_DTO_ERR_BAD_RESPONSE] = { "DAT_DTO_ERR_BAD_RESPONSE", mdapl_dapl_bug_advice },
    [DAT_DTO_ERR_REMOTE_ACCESS] = { "DAT_DTO_ERR_REMOTE_ACCESS", mdapl_dapl_bug_advice },
    [DAT_DTO_ERR_REMOTE_RESPONDER] = { "DAT_DTO_ERR_REMOTE_RESPONDER", mdapl_dapl_bug_advice },
    [DAT_DTO_ERR_TRANSPORT] = { "DAT_DTO_ERR_TRANSPORT", PATH_ADVICE },
    [DAT_DTO_ERR_RECEIVER_NOT_READY] = { "DAT_DTO_ERR_RECEIVER_NOT_READY", PEER_ADVICE },
    [DAT_DTO_ERR_PARTIAL_PACKET] = { "DAT_DTO_ERR_PARTIAL_PACKET", mdapl_dapl_bug_advice },
    [DAT_RMR_OPERATION_FAILED] = { "DAT_RMR_OPERATION_FAILED", mdapl_dapl_bug_advice },
    [DAT_DTO_ERR_LOCAL_MM_ERROR] = { "DAT_DTO_ERR_LOCAL_MM_ERROR", mdapl_dapl_bug_advice },
};

static const char *const op_name[MDAPL_DAPL_OPS] = {
    [MDAPL_DAPL_OP_SEND] = "a send",
    [MDAPL_DAPL_OP_RECV] = "a receive",
    [MDAPL_DAPL_OP_READ] = "an RDMA read",
    [MDAPL_DAPL_OP_WRITE] = "an RDMA write",
    [MDAPL_DAPL_OP_RING_WRITE] = "an RDMA write into the peer's ring",
    [MDAPL_DAPL_OP_PROBE] = "an RDMA write that tests the path",
};

/* Providers may deliver numbers that DAT 2.0 does not have. */
static bool known(DAT_DTO_COMPLETION_STATUS status)
{
    return (size_t)status < sizeof(dto_status) / sizeof(dto_status[0]);
}

static const char *status_name(DAT_DTO_COMPLETION_STATUS status)
{
    return known(status) ? dto_status[status].name : "a status that DAT does not have";
}

const char *mdapl_dapl_fault_name(const struct mdapl_dapl_fault *f)
{
    if (f->kind == MDAPL_DAPL_FAULT_DTO || f->kind == MDAPL_DAPL_FAULT_POST)
        return op_name[f->op];
    return f->cause ? f->cause->text : f->text;
}

const char *mdapl_dapl_fault_text(const struct mdapl_dapl_fault *f, char *buf, size_t len)
{
    char ret[96];

    if (f->kind == MDAPL_DAPL_FAULT_DTO)
        snprintf(buf, len, "%s failed (%s)", op_name[f->op], status_name(f->dto_status));
    else if (f->kind == MDAPL_DAPL_FAULT_POST)
        snprintf(buf, len, "%s was refused (%s)", op_name[f->op],
                 mdapl_dapl_dat_text(f->ia, f->ret, ret));
    else
        snprintf(buf, len, "%s", f->cause->text);
    return buf;
}

bool mdapl_dapl_fault_is_bug(const struct mdapl_dapl_fault *f)
{
    return f->kind == MDAPL_DAPL_FAULT_DTO
           && mdapl_dapl_fault_advice(f) == mdapl_dapl_bug_advice;
}

const char *mdapl_dapl_fault_advice(const struct mdapl_dapl_fault *f)
{
    if (f->kind == MDAPL_DAPL_FAULT_DTO)
        return known(f->dto_status) ? dto_status[f->dto_status].advice : mdapl_dapl_bug_advice;
    if (f->kind == MDAPL_DAPL_FAULT_POST)
        return "The provider has run out of a resource or has found the endpoint unusable: see the "
               "system's log, and raise the limits on memory and locked memory (ulimit -l)";
    return f->cause->advice;
}
