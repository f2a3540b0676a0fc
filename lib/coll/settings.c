/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll/settings.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/engine.h"
#include "format.h"
#include "predict/number.h"
#include "schedule/registry.h"
#include "sized.h"

#define AT(member) offsetof(struct coll_settings, member), sizeof((struct coll_settings *)0)->member

const struct setting pici_settings[] = {
    {"PICI_ALGORITHM", "algorithm", SETTING_ALGORITHM, AT(algorithm), 0, 0, NULL, "auto"},
    {"PICI_FORMAT", "format", SETTING_FORMAT, AT(format), 0, 0, NULL, "auto"},
    {"PICI_AUTO_FORMATS", "formats", SETTING_FORMATS, AT(formats), 0, 0, NULL, "all"},
    {"PICI_PACK", "pack", SETTING_PACK, AT(pack), 0, 0, NULL, "auto"},
    {"PICI_BALANCE", "balance", SETTING_BALANCE, AT(balance), 0, 0, NULL, "auto"},
    {"PICI_INTER_BANDWIDTH", "inter_bandwidth", SETTING_RATE, AT(bandwidth[POLICY_INTER]), 0, 1e18, "bytes per second",
     "1.25e8"},
    {"PICI_INTRA_BANDWIDTH", "intra_bandwidth", SETTING_RATE, AT(bandwidth[POLICY_INTRA]), 0, 1e18, "bytes per second",
     "5e9"},
    {"PICI_INTER_THRESHOLD", "inter_threshold", SETTING_REAL, AT(threshold.reduce[POLICY_INTER]), 0, 1,
     "a number from 0 to 1", "by format"},
    {"PICI_INTRA_THRESHOLD", "intra_threshold", SETTING_REAL, AT(threshold.reduce[POLICY_INTRA]), 0, 1,
     "a number from 0 to 1", "by format"},
    {"PICI_AG_THRESHOLD", "ag_threshold", SETTING_REAL, AT(threshold.gather), 0, 1, "a number from 0 to 1",
     "by format"},
    {"PICI_STREAM_THRESHOLD", NULL, SETTING_REAL, AT(stream_threshold), 0, 1, "a number from 0 to 1", "0.93"},
    {"PICI_TIMEOUT_MS", "timeout_ms", SETTING_INT, AT(timeout_ms), -1, 1 << 30, "milliseconds, or -1 for none",
     "60000"},
    {"PICI_CHECKSUM", "checksum", SETTING_INT, AT(checksum), 0, 1, "0 or 1", "0"},
    {"PICI_SLICE_BYTES", "slice_bytes", SETTING_BYTES, AT(slice_bytes), 1, 0x1p40, "bytes, from 1 to 2^40",
     "1 MiB; over NCCL 8 MiB, over sockets of one node 256 KiB"},
    {"PICI_WINDOW", "window", SETTING_INT, AT(window), 1, COLL_MAX_WINDOW, "a number from 1 to 64", "4"},
    {"PICI_NATIVE", "native", SETTING_INT, AT(native), 0, 1, "0 or 1", "0"},
    {"PICI_TUNE", NULL, SETTING_FILE, AT(tune), 0, 0, "the path of a tune file; empty: none", "none"},
    {"PICI_TUNE_VERBOSE", NULL, SETTING_INT, AT(tune_verbose), 0, 1, "0 or 1", "0"},
    {"PICI_TUNE_HISTORY", "history", SETTING_INT, AT(history), 0, 1, "0 or 1", "1"},
    {"PICI_TRACE", NULL, SETTING_PATH, AT(trace), 0, 0, "the path of a file", "none"},
    {"PICI_RANK", NULL, SETTING_INT, AT(rank), 0, COLL_MAX_RANKS - 1, "the number of this rank, from 0", "none"},
    {"PICI_RANKS", NULL, SETTING_INT, AT(ranks), 1, COLL_MAX_RANKS, "how many ranks there are", "none"},
    {"PICI_RENDEZVOUS", NULL, SETTING_PATH, AT(rendezvous), 0, 0, "HOST:PORT, where rank 0 listens", "none"},
    {"PICI_TOKEN", NULL, SETTING_FILE, AT(token), 0, 0, "a secret of at most 64 bytes; empty: none", "none"},
    {"PICI_SOCKET_IFNAME", NULL, SETTING_PATH, AT(interface), 0, 0, "the name of a network interface",
     "the route to rank 0"},
    {"PICI_SOCKET_PORTS", NULL, SETTING_RANGE, AT(ports), 1, 65535, "two ports, LOW-HIGH", "any"},
    {"PICI_SOCKET_SHARED", NULL, SETTING_INT, AT(shared), 0, 1, "0 or 1", "1"},
    {"PICI_SOCKET_STREAMS", NULL, SETTING_INT, AT(connections), 1, 64, "a number from 1 to 64", "1"},
    {"PICI_SOCKET_TLS", NULL, SETTING_INT, AT(tls), 0, 1, "0 or 1", "0"},
    {"PICI_SOCKET_TLS_CERT", NULL, SETTING_PATH, AT(tls_certificate), 0, 0, "the path of a file", "none"},
    {"PICI_SOCKET_TLS_KEY", NULL, SETTING_PATH, AT(tls_key), 0, 0, "the path of a file", "none"},
    {"PICI_SOCKET_TLS_CA", NULL, SETTING_PATH, AT(tls_authority), 0, 0, "the path of a file", "none"},
    {NULL, NULL, SETTING_INT, 0, 0, 0, 0, NULL, NULL},
};

static const struct coll_settings usual = {.format = PICI_AUTO,
                                           .pack = PICI_PACKING_AUTO,
                                           .balance = PICI_BALANCE_AUTO,
                                           .threshold = {{-1, -1}, -1},
                                           .stream_threshold = -1,
                                           .timeout_ms = 60000,
                                           .window = 4,
                                           .history = 1,
                                           .shared = 1,
                                           .connections = 1,
                                           .rank = -1,
                                           .bandwidth = {1.25e8, 5e9}};

/* ---- words */

static const enum pici_format formats[] = {PICI_DENSE, PICI_BITMAP, PICI_COO, PICI_HYBRID};
enum { FORMATS = sizeof formats / sizeof *formats };

/* The ith name that a type allows, and its value; NULL after the last. */
static const char *name_of(enum setting_type type, int i, unsigned *value)
{
    if (type == SETTING_ALGORITHM) {
        *value = i ? (unsigned)pici_schedules[i - 1].id : PICI_ALGO_AUTO;
        return i ? pici_schedules[i - 1].name : "auto";
    }
    if (type == SETTING_PACK) {
        static const char *const names[] = {"auto", "none", "planes"};
        *value = (unsigned)(PICI_PACKING_AUTO + i);
        return i < 3 ? names[i] : NULL;
    }
    if (type == SETTING_BALANCE) {
        static const char *const names[] = {"auto", "on", "off"};
        *value = (unsigned)(PICI_BALANCE_AUTO + i);
        return i < 3 ? names[i] : NULL;
    }
    if (type == SETTING_FORMAT && i-- == 0) {
        *value = PICI_AUTO;
        return pici_format_name(PICI_AUTO);
    }
    *value = i < FORMATS ? (unsigned)formats[i] : 0;
    return i < FORMATS ? pici_format_name(formats[i]) : NULL;
}

void pici_setting_values(const struct setting *setting, char *explanation, size_t bytes)
{
    size_t offset = 0;
    unsigned value;
    const char *name, *next;
    if (setting->values) {
        snprintf(explanation, bytes, "%s", setting->values);
        return;
    }
    explanation[0] = '\0';
    if (setting->type == SETTING_FORMATS)
        offset += (size_t)snprintf(explanation, bytes, "a list, with commas, of ");
    for (int i = 0; (name = name_of(setting->type, i, &value)) && offset < bytes; i++) {
        next = name_of(setting->type, i + 1, &value);
        const char *separator = "";
        if (next)
            separator = name_of(setting->type, i + 2, &value) ? ", " : " or ";
        offset += (size_t)snprintf(explanation + offset, bytes - offset, "%s%s", name, separator);
    }
}

/* ---- the environment */

static int read_name(enum setting_type type, const char *text, size_t size, unsigned *value)
{
    const char *name;
    for (int i = 0; (name = name_of(type, i, value)); i++)
        if (strlen(name) == size && memcmp(name, text, size) == 0)
            return 1;
    *value = PICI_BITMAP;
    return (type == SETTING_FORMAT || type == SETTING_FORMATS) && size == strlen(FMT_BITMAP_ALIAS) &&
           memcmp(FMT_BITMAP_ALIAS, text, size) == 0;
}

static int read_names(const char *text, unsigned *set)
{
    unsigned value;
    for (*set = 0;; text++) {
        const size_t size = strcspn(text, ",");
        if (!read_name(SETTING_FORMATS, text, size, &value))
            return 0;
        *set |= 1u << value;
        text += size;
        if (!*text)
            return 1;
    }
}

static int read_integer(const char *text, long long *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0';
}

/* LOW-HIGH */
static int read_range(const char *text, const struct setting *setting, int range[2])
{
    char low[12];
    long long values[2];
    const size_t size = strcspn(text, "-");
    if (size >= sizeof low || !text[size])
        return 0;
    memcpy(low, text, size);
    low[size] = '\0';
    if (!read_integer(low, &values[0]) || !read_integer(text + size + 1, &values[1]) ||
        (double)values[0] < setting->low || (double)values[1] > setting->high || values[0] > values[1])
        return 0;
    range[0] = (int)values[0];
    range[1] = (int)values[1];
    return 1;
}

/* Store a number of the member's width. */
static void store(uint8_t *position, const struct setting *setting, double real, long long integer)
{
    const float single = (float)real;
    const int i = (int)integer;
    const uint64_t wide = (uint64_t)integer;
    if (setting->type == SETTING_REAL || setting->type == SETTING_RATE)
        memcpy(position, setting->bytes == sizeof single ? (const void *)&single : (const void *)&real, setting->bytes);
    else
        memcpy(position, setting->bytes == sizeof i ? (const void *)&i : (const void *)&wide, setting->bytes);
}

/* Set one variable; 0: its value is invalid. */
static int set(struct coll_settings *settings, const struct setting *setting, const char *text)
{
    uint8_t *position = (uint8_t *)settings + setting->offset;
    double real = 0;
    long long integer = 0;
    unsigned value;
    int range[2];
    switch (setting->type) {
    case SETTING_ALGORITHM:
    case SETTING_FORMAT:
    case SETTING_PACK:
    case SETTING_BALANCE:
        if (!read_name(setting->type, text, strlen(text), &value))
            return 0;
        memcpy(position, &value, sizeof value); /* enumerations have the type unsigned int here */
        return 1;
    case SETTING_FORMATS:
        if (!read_names(text, &value))
            return 0;
        memcpy(position, &value, sizeof value);
        return 1;
    case SETTING_REAL:
        if (!pici_number_read(text, strlen(text), &real) || real < setting->low || real > setting->high)
            return 0;
        break;
    case SETTING_RATE:
        if (!pici_number_read(text, strlen(text), &real) || real <= setting->low || real > setting->high)
            return 0;
        break;
    case SETTING_INT:
    case SETTING_BYTES:
        if (!read_integer(text, &integer) || (double)integer < setting->low || (double)integer > setting->high ||
            (setting->low < 0 && integer == 0))
            return 0;
        break;
    case SETTING_PATH:
    case SETTING_FILE:
        if (!text[0] && setting->type == SETTING_PATH)
            return 0;
        memcpy(position, &text, sizeof text);
        return 1;
    case SETTING_RANGE:
        if (!read_range(text, setting, range))
            return 0;
        memcpy(position, range, sizeof range);
        return 1;
    }
    store(position, setting, real, integer);
    return 1;
}

/* A variable's text. PICI_NATIVE was called PICI_VENDOR until version 0.3. */
static const char *text_of(const struct setting *setting)
{
    const char *text = getenv(setting->variable);
    return text || setting->offset != offsetof(struct coll_settings, native) ? text : getenv("PICI_VENDOR");
}

enum pici_status pici_settings_read(struct coll_settings *settings, char *reason, size_t bytes)
{
    _Static_assert(sizeof(enum pici_algorithm) == sizeof(unsigned) && sizeof(enum pici_format) == sizeof(unsigned) &&
                       sizeof(enum pici_packing) == sizeof(unsigned) && sizeof(enum pici_balance) == sizeof(unsigned),
                   "enumerators are stored as unsigned ints");
    *settings = usual;
    for (const struct setting *setting = pici_settings; setting->variable; setting++) {
        const char *text = text_of(setting);
        if (text && !set(settings, setting, text)) {
            char values[120];
            pici_setting_values(setting, values, sizeof values);
            snprintf(reason, bytes, "environment variable %s is \"%.80s\", which is not %s", setting->variable, text,
                     values);
            return PICI_E_ARG;
        }
        for (int i = 0; i < POLICY_LINKS && text; i++)
            if (setting->offset ==
                offsetof(struct coll_settings, bandwidth) + (size_t)i * sizeof settings->bandwidth[0])
                settings->known |= 1u << i;
    }
    return PICI_OK;
}

/* ---- the caller */

/* Change *ours unless `said` leaves it as it is. 0: `said` is invalid. */
static int tune_threshold(float *ours, float said)
{
    if (said >= 0)
        *ours = said;
    return !isnan(said);
}

static int tune_bandwidth(double *ours, double said)
{
    if (said > 0)
        *ours = said;
    return said >= 0 && !isinf(said); /* not a NaN */
}

enum pici_status pici_settings_tune(struct coll_settings *settings, const struct pici_tune *theirs)
{
    struct pici_tune tune = PICI_TUNE_INIT;
    struct coll_settings changed = *settings;
    enum pici_status status = theirs ? sized_read(&tune, sizeof tune, sizeof tune, theirs) : PICI_E_ARG;
    if (status)
        return status;
    if ((tune.algorithm && !pici_schedule(tune.algorithm)) ||
        ((unsigned)tune.format > PICI_HYBRID && tune.format != PICI_AUTO) || tune.formats >> (PICI_HYBRID + 1) ||
        (unsigned)tune.pack > PICI_PACKING_PLANES || (unsigned)tune.balance > PICI_BALANCE_OFF)
        return PICI_E_UNSUPPORTED;
    if (!tune_threshold(&changed.threshold.reduce[POLICY_INTER], tune.inter_threshold) ||
        !tune_threshold(&changed.threshold.reduce[POLICY_INTRA], tune.intra_threshold) ||
        !tune_threshold(&changed.threshold.gather, tune.ag_threshold) ||
        !tune_bandwidth(&changed.bandwidth[POLICY_INTER], tune.inter_bandwidth) ||
        !tune_bandwidth(&changed.bandwidth[POLICY_INTRA], tune.intra_bandwidth) || tune.window < 0 ||
        tune.window > COLL_MAX_WINDOW)
        return PICI_E_ARG;
    changed.algorithm = tune.algorithm ? tune.algorithm : changed.algorithm;
    changed.format = tune.format != PICI_AUTO ? tune.format : changed.format;
    changed.formats = tune.formats ? tune.formats : changed.formats;
    changed.window = tune.window ? tune.window : changed.window;
    changed.slice_bytes = tune.slice_bytes ? tune.slice_bytes : changed.slice_bytes;
    changed.timeout_ms = tune.timeout_ms ? tune.timeout_ms : changed.timeout_ms;
    changed.checksum = tune.checksum ? tune.checksum > 0 : changed.checksum;
    changed.history = tune.history ? tune.history > 0 : changed.history;
    changed.pack = tune.pack ? tune.pack : changed.pack;
    changed.balance = tune.balance ? tune.balance : changed.balance;
    changed.known |= (unsigned)(tune.inter_bandwidth > 0) << POLICY_INTER | (unsigned)(tune.intra_bandwidth > 0)
                                                                                << POLICY_INTRA;
    *settings = changed;
    return PICI_OK;
}
