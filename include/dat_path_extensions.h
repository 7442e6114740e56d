/* SPDX-License-Identifier: MIT */
#ifndef DAT_PATH_EXTENSIONS_H
#define DAT_PATH_EXTENSIONS_H
/*
 * Automatic path migration through DAT 2.0: extended operations and events by which a connected
 * endpoint (EP) gets a second path, and moves to it when the first one fails or on request, without
 * an error and without loss. docs/paths.md has the state machine, the rules and what each
 * operation is on verbs.
 *
 * A provider that has them says so by the named attribute DAT_PATH_ATTR among its provider-specific
 * attributes (dat_ia_query(), DAT_PROVIDER_ATTR.provider_specific_attr); another answers the
 * operations with DAT_NOT_IMPLEMENTED or DAT_INVALID_PARAMETER and makes none of the events. What
 * DAT itself has for this is meant, too: a connection that was requested, or accepted, with
 * DAT_CONNECT_MULTIPATH_REQUESTED_FLAG is loaded by the provider, is in the state
 * DAT_EP_STATE_CONNECTED_MULTI_PATH while it is armed, and reports DAT_HA_DOWN_TO_1 and
 * DAT_HA_UP_TO_MULTI_PATH (DAT 2.0, dat_ep_connect and section 6.5, asynchronous events).
 *
 * The numbers are clear of those of dat_ib_extensions.h. This header needs nothing but udat.h.
 */
#include <dat2/udat.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DAT_PATH_EXTENSION_VERSION 100          /* 1.0.0 */

/* Named attributes of the provider; each value is a text. */
#define DAT_PATH_ATTR       "DAT_PATH_MIGRATION"    /* DAT_PATH_EXTENSION_VERSION, decimal */
#define DAT_PATH_ATTR_PORTS "DAT_PATH_PORTS"        /* ports of this IA, decimal, at least 1 */

/* The largest number of ports that a path can name. */
#define DAT_PATH_MAX_PORT 255

/* A path between two IAs, by the ports at its ends. Ports are counted from 1. 0: the provider
 * chooses; for an alternate, a port that the path in use does not have, if there is one. */
typedef struct dat_path {
    DAT_UINT32 local_port;
    DAT_UINT32 remote_port;
} DAT_PATH;

/* The migration state of an EP, as InfiniBand's (volume 1, section 17.2.8). */
typedef enum dat_path_state {
    DAT_PATH_MIGRATED,      /* no alternate is loaded; the state of every new connection */
    DAT_PATH_REARM,         /* this side has loaded its alternate, or the alternate is down */
    DAT_PATH_ARMED          /* both sides have loaded theirs: the connection can migrate */
} DAT_PATH_STATE;

typedef struct dat_path_param {
    DAT_PATH_STATE state;
    DAT_PATH current;       /* the path in use; remote_port 0: the peer's ports are not known */
    DAT_PATH alternate;     /* as it was set; both 0: none is set */
    DAT_UINT32 n_armed;     /* transitions to ARMED of this connection, */
    DAT_UINT32 n_migrated;  /* from ARMED to MIGRATED, whichever side has begun them, */
    DAT_UINT32 n_failed;    /* and migrations that ended the connection */
} DAT_PATH_PARAM;

typedef enum dat_path_op {
    DAT_PATH_SET_ALTERNATE_OP = 0x100,
    DAT_PATH_REARM_OP,
    DAT_PATH_MIGRATE_OP,
    DAT_PATH_QUERY_OP
} DAT_PATH_OP;

/*
 * Specification: sets the path to which this side of the connection migrates. The EP is unconnected
 * or connected, and its state is MIGRATED. NULL: the provider chooses, as for two zeros.
 * `path` is the caller's and is copied.
 *
 * DAT_INVALID_HANDLE      ep is no EP
 * DAT_INVALID_STATE       the state of migration is REARM or ARMED, or the EP is ending
 * DAT_INVALID_PARAMETER   no such port at this side, or at the peer if its ports are known; or the
 *                         path is the one in use
 * DAT_MODEL_NOT_SUPPORTED no path but the one in use exists
 */
#define dat_path_set_alternate(ep, path) \
    dat_extension_op((ep), DAT_PATH_SET_ALTERNATE_OP, (const DAT_PATH *)(path))

/*
 * Loading: MIGRATED to REARM. When the peer has done the same the state is ARMED at both sides,
 * each of which gets DAT_PATH_EVENT_ARMED. One side alone stays in REARM, and its connection cannot
 * migrate. An alternate that does not work is not an error: the connection is not armed before it
 * does.
 * Requests that are posted or in flight are not affected.
 *
 * DAT_INVALID_HANDLE      ep is no EP
 * DAT_INVALID_STATE       not connected, no alternate is set, or the state is not MIGRATED
 */
#define dat_path_rearm(ep) dat_extension_op((ep), DAT_PATH_REARM_OP)

/*
 * Migration on request: ARMED to MIGRATED, with DAT_PATH_EVENT_MIGRATED at both sides once the
 * connection uses the other path. Either side may ask, and both at once. Requests that are in
 * flight complete as if nothing had happened: none is lost, flushed or executed twice.
 *
 * DAT_INVALID_HANDLE      ep is no EP
 * DAT_INVALID_STATE       the state is not ARMED
 */
#define dat_path_migrate(ep) dat_extension_op((ep), DAT_PATH_MIGRATE_OP)

/*
 * Fills *param, which is the caller's. Legal in every state of an EP.
 *
 * DAT_INVALID_HANDLE, DAT_INVALID_PARAMETER (param is NULL)
 */
#define dat_path_query(ep, param) \
    dat_extension_op((ep), DAT_PATH_QUERY_OP, (DAT_PATH_PARAM *)(param))

/* Events, on the asynchronous EVD of the IA; event_extension_data is a DAT_PATH_EVENT_DATA. */
typedef enum dat_path_event_number {
    DAT_PATH_EVENT_ARMED = DAT_IB_EXTENSION_RANGE_BASE + 0x100,
    DAT_PATH_EVENT_MIGRATED,    /* the connection uses the alternate, which is now none */
    DAT_PATH_EVENT_FAILED,      /* it could not migrate; the connection breaks, with its event */
    DAT_PATH_EVENT_DOWN,        /* of an EP: its alternate has failed, ARMED to REARM; it is armed
                                 * again by itself. Of no EP: local_port is down */
    DAT_PATH_EVENT_UP           /* of no EP: local_port is up again */
} DAT_PATH_EVENT_NUMBER;

typedef enum dat_path_cause {
    DAT_PATH_CAUSE_NONE,
    DAT_PATH_CAUSE_REQUEST,     /* dat_path_migrate() of this side */
    DAT_PATH_CAUSE_PEER,        /* the peer has migrated */
    DAT_PATH_CAUSE_PORT,        /* the port of the former path is down */
    DAT_PATH_CAUSE_TIMEOUT      /* the former path did not transmit for the provider's time */
} DAT_PATH_CAUSE;

/* At most 64 bytes, the room that DAT_EVENT has. */
typedef struct dat_path_event_data {
    DAT_HANDLE handle;          /* the EP; the IA for an event of a port */
    DAT_CONTEXT context;        /* the EP's consumer context (dat_set_consumer_context()) */
    DAT_PATH path;              /* the path in use after the event; of a port: local_port is it */
    DAT_UINT32 cause;           /* DAT_PATH_CAUSE */
    DAT_UINT32 n_migrated;      /* as in DAT_PATH_PARAM, counting this one */
} DAT_PATH_EVENT_DATA;

#ifdef __cplusplus
}
#endif

#endif
