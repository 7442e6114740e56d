/* SPDX-License-Identifier: MIT */
#ifndef SOFTDAT_TEST_WORLD_H
#define SOFTDAT_TEST_WORLD_H
/*
 * The fixture of the provider's tests: two adapters of one process. All waiting is for events.
 * Needs DAT_OVERRIDE with an IA soft0, and the IAs that CASE_ON names.
 */
#include "control.h"
#include "unit.h"

#include <netinet/in.h>

#include <dat2/udat.h>
#include <dat2/dat_ib_extensions.h>
#include <stdbool.h>
#include <stdint.h>

/* us; ATMOST bounds the waits for what happens at once, also on a busy machine. */
enum { SEC = 1000000, ATMOST = 60 * SEC };
enum { QLEN = 64 };

struct side {
    DAT_IA_HANDLE ia;
    DAT_EVD_HANDLE async, dto, conn, cr;
    DAT_PZ_HANDLE pz;
    DAT_EP_HANDLE ep;
    uint8_t *buf;                /* BUF bytes, registered with all rights */
    DAT_LMR_HANDLE lmr;
    DAT_LMR_CONTEXT local;
    DAT_RMR_CONTEXT key;
};

enum { BUF = 1 << 20 };

struct world {
    struct side a, b;            /* a: active side; b: passive, listens on psp */
    DAT_PSP_HANDLE psp;
    DAT_CONN_QUAL qual;
    DAT_SOCK_ADDR *addr;
};

#define OK(call) assert_int_equal(DAT_GET_TYPE(call), DAT_SUCCESS)
#define IS(type, call) assert_int_equal(DAT_GET_TYPE(call), DAT_GET_TYPE(type))

/* Waits for the next event, 5 s at most. */
DAT_EVENT next_event(DAT_EVD_HANDLE evd);
/* Waits for an event and compares it. */
void expect_conn(struct side *s, DAT_EVENT_NUMBER number);
void expect_dto(struct side *s, uint64_t cookie, DAT_DTO_COMPLETION_STATUS status);
/* Fails if an event arrives within 20 ms. */
void expect_nothing(DAT_EVD_HANDLE evd);
/* len bytes at offset `at` of a side's buffer, as a local or remote segment. */
DAT_LMR_TRIPLET seg(const struct side *s, size_t at, uint32_t len);
DAT_RMR_TRIPLET rseg(const struct side *s, size_t at, uint32_t len);
DAT_DTO_COOKIE cookie(uint64_t n);
void post_recv(struct side *s, size_t at, uint32_t len, uint64_t n);
void post_send(struct side *s, size_t at, uint32_t len, uint64_t n);
/* Registers all of a side's buffer, with all rights. */
void register_buf(struct side *s, DAT_LMR_HANDLE *lmr, DAT_LMR_CONTEXT *local,
                  DAT_RMR_CONTEXT *key);
void make_ep(struct side *s);
void open_side(struct side *s, const char *name);
/* Frees all objects of a side, and its memory. */
void close_side(struct side *s);
int set_up(void **state);
int tear_down(void **state);
/* Connects a's EP with len bytes of private data; returns b's connection request. */
DAT_CR_HANDLE request(struct world *w, const void *priv, int len);
/* Connects a's EP to b's. */
void connect_pair(struct world *w);
/* A TCP socket whose port, like that of the provider's own, can be a qualifier at the same time. */
int raw_socket(void);
/* Connects it to a service point at addr (struct sockaddr_in), without a protocol. */
void raw_connect(int fd, const void *addr, DAT_CONN_QUAL qual);
DAT_EP_STATE state_of(struct side *s);
/* Sends a command to the process's k-th adapter, as daplsoft does. Returns the length of the reply,
 * -1: none. reply: SOFTDAT_CONTROL_MAX + 1 bytes. */
ssize_t control(unsigned k, const char *command, char *reply);

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
/* On the IA of this name. */
#define CASE_ON(f, name) \
    cmocka_unit_test_prestate_setup_teardown(f, set_up, tear_down, (void *)(uintptr_t)(name))

#endif
