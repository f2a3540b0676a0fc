/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Settings of a communicator: defaults, changed by the environment, changed by pici_comm_tune. One table lists the
 * variables: pici_settings_read follows it, and a test compares it with the table in docs/reference/settings.md. */
#ifndef PICI_LIB_COLL_SETTINGS_H
#define PICI_LIB_COLL_SETTINGS_H

#include "predict/policy.h"
#include "pici/coll.h"

enum { COLL_MAX_RANKS = 1 << 20 };

struct coll_settings {
    enum pici_algorithm algorithm;
    enum pici_format format;
    struct policy_thresholds threshold;
    float stream_threshold;
    double bandwidth[POLICY_LINKS]; /* bytes per second */
    unsigned known;                 /* bits 1 << enum policy_link: this bandwidth was set */
    enum pici_packing pack;
    enum pici_balance balance;
    unsigned formats; /* that AUTO may choose; 0: all */
    int timeout_ms, checksum, window, history;
    uint64_t slice_bytes; /* 0: depends on where the transport's messages are */
    int native;           /* calls may be the transport library's own collectives */
    const char *trace;    /* path, or NULL */
    const char *tune;     /* path, "" or NULL */
    int tune_verbose;
    int rank, ranks;        /* of a rendezvous; -1 and 0: not set */
    const char *rendezvous; /* where it is, or NULL */
    const char *token;      /* the secret that ranks present there, or NULL */
    const char *interface;  /* a rank listens at its address, or NULL */
    int shared;             /* ranks of a host exchange messages through memory that they share */
    int connections;        /* between two ranks that share no memory */
    int tls;                /* connections of a rendezvous are encrypted: by the token, or with these files */
    const char *tls_certificate, *tls_key, *tls_authority;
    int ports[2]; /* the lowest and the highest to listen at; 0: any */
};

enum setting_type {
    SETTING_ALGORITHM, /* a name in the registry of schedules, or "auto" */
    SETTING_FORMAT,    /* a name of a format, or "auto" */
    SETTING_FORMATS,   /* names of formats, with commas: a set of bits */
    SETTING_PACK,      /* auto, none or planes */
    SETTING_BALANCE,   /* auto, on or off */
    SETTING_REAL,      /* float or double in [low, high] */
    SETTING_RATE,      /* double in (0, high] */
    SETTING_INT,       /* int in [low, high]; not 0 if low < 0 */
    SETTING_BYTES,     /* uint64_t in [low, high] */
    SETTING_PATH,      /* any text that is not empty */
    SETTING_FILE,      /* any text; empty: none */
    SETTING_RANGE      /* two ints LOW-HIGH in [low, high] */
};

struct setting {
    const char *variable;
    const char *option; /* the member of struct pici_coll_opts or struct pici_tune, or NULL */
    enum setting_type type;
    size_t offset, bytes; /* in struct coll_settings */
    double low, high;
    const char *values; /* as text; NULL: the names that the type allows */
    const char *usual;  /* the default, as text */
};

/* Ends with a row whose variable is NULL. */
extern const struct setting pici_settings[];

/* The values of a row as text: "auto, ring or split". Writes at most `bytes` bytes. */
void pici_setting_values(const struct setting *, char *explanation, size_t bytes);

/* Set the defaults, then read the environment. PICI_E_ARG: a value is invalid; reason [bytes] names the variable. */
enum pici_status pici_settings_read(struct coll_settings *, char *reason, size_t bytes);

/* Change what the caller's struct sets; the rest stays. PICI_E_ARG, _UNSUPPORTED: nothing is changed. */
enum pici_status pici_settings_tune(struct coll_settings *, const struct pici_tune *);

#endif
