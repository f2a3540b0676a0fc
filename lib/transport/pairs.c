/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "transport/pairs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/meet.h"

enum { GRACE_MS = 2000 }; /* that the others have, once one of them has failed */

struct pairs {
    struct shared **shared; /* the caller's */
    const int *fds, *node_of;
    int rank, ranks, timeout_ms;
    struct meet_side *sides; /* [ranks] */
    int *made;               /* [ranks] descriptors of this rank's memory, or -1 */
    uint8_t *bytes;          /* [ranks * OFFER_BYTES] */
    int failures;
    char *explanation;
    size_t explanation_bytes;
};

static int is_near(const struct pairs *pairs, int i)
{
    return i != pairs->rank && pairs->node_of[i] == pairs->node_of[pairs->rank];
}

/* Memory that is wanted cannot be had, for a reason. 0: a rank does not want it. */
static void note(struct pairs *pairs, int peer, int error)
{
    if (!error || pairs->failures++)
        return;
    snprintf(pairs->explanation, pairs->explanation_bytes, "with rank %d: %s", peer, strerror(error));
}

/* Send offers to the ranks of this node that are above or below this one, and receive those of the others. */
static enum pici_status exchange(struct pairs *pairs, int above)
{
    for (int i = 0; i < pairs->ranks; i++) {
        uint8_t *offer = pairs->bytes + (size_t)i * OFFER_BYTES;
        const int sends = (i > pairs->rank) == above;
        pairs->sides[i] = (struct meet_side){.fd = is_near(pairs, i) ? pairs->fds[i] : -1,
                                             .outgoing = offer,
                                             .incoming = offer,
                                             .out_bytes = sends ? OFFER_BYTES : 0,
                                             .in_bytes = sends ? 0 : OFFER_BYTES};
    }
    return pici_meet(pairs->sides, pairs->ranks, pici_meet_deadline(pairs->timeout_ms), GRACE_MS);
}

/* What has come from a rank; nothing if it did not do its part: then it is given up. */
static struct greeting_offer offer_of(const struct pairs *pairs, int i)
{
    struct greeting_offer offer = {.kind = OFFER_NOTHING};
    if (pairs->sides[i].status || pici_offer_get(&offer, pairs->bytes + (size_t)i * OFFER_BYTES))
        shutdown(pairs->fds[i], SHUT_RDWR);
    return offer;
}

static void make_offers(struct pairs *pairs, int wanted)
{
    int near = 1;
    for (int i = 0; i < pairs->ranks; i++)
        near += is_near(pairs, i);
    for (int i = pairs->rank + 1; i < pairs->ranks; i++) {
        struct greeting_offer offer = {.kind = OFFER_NOTHING};
        if (!is_near(pairs, i))
            continue;
        if (wanted) {
            pairs->shared[i] = pici_shared_make(&offer, pici_shared_ring_bytes(near), &pairs->made[i]);
            note(pairs, i, pairs->shared[i] ? 0 : (int)offer.process);
        }
        pici_offer_put(pairs->bytes + (size_t)i * OFFER_BYTES, &offer);
    }
}

static void take_offers(struct pairs *pairs, int wanted)
{
    for (int i = 0; i < pairs->rank; i++) {
        if (!is_near(pairs, i))
            continue;
        const struct greeting_offer offer = offer_of(pairs, i);
        struct greeting_offer answer = {.kind = OFFER_NOTHING};
        if (offer.kind == OFFER_MEMORY && wanted) {
            pairs->shared[i] = pici_shared_open(&offer);
            answer.kind = pairs->shared[i] ? OFFER_MEMORY : OFFER_NOTHING;
            answer.process = pairs->shared[i] ? 0 : (uint32_t)errno;
        }
        note(pairs, i, wanted ? (int)(offer.kind == OFFER_MEMORY ? answer.process : offer.process) : 0);
        pici_offer_put(pairs->bytes + (size_t)i * OFFER_BYTES, &answer);
    }
}

static void take_answers(struct pairs *pairs)
{
    for (int i = pairs->rank + 1; i < pairs->ranks; i++) {
        if (!is_near(pairs, i))
            continue;
        const struct greeting_offer answer = offer_of(pairs, i);
        if (!pairs->shared[i] || answer.kind == OFFER_MEMORY)
            continue;
        note(pairs, i, (int)answer.process);
        pici_shared_free(pairs->shared[i]);
        pairs->shared[i] = NULL;
    }
}

enum pici_status pici_pairs(struct shared **shared, const int *fds, const int *node_of, int rank, int ranks, int wanted,
                            int timeout_ms, int *failures, char *explanation, size_t bytes)
{
    const size_t count = (size_t)ranks;
    struct pairs pairs = {.shared = shared,
                          .fds = fds,
                          .node_of = node_of,
                          .rank = rank,
                          .ranks = ranks,
                          .timeout_ms = timeout_ms,
                          .sides = calloc(count, sizeof *pairs.sides),
                          .made = malloc(count * sizeof *pairs.made),
                          .bytes = calloc(count, OFFER_BYTES),
                          .explanation = explanation,
                          .explanation_bytes = bytes};
    enum pici_status status = pairs.sides && pairs.made && pairs.bytes ? PICI_OK : PICI_E_NOMEM;
    for (int i = 0; i < ranks; i++) {
        shared[i] = NULL;
        if (pairs.made)
            pairs.made[i] = -1;
    }
    if (!status) {
        make_offers(&pairs, wanted);
        status = exchange(&pairs, 1);
    }
    if (!status) {
        take_offers(&pairs, wanted);
        status = exchange(&pairs, 0);
    }
    if (!status)
        take_answers(&pairs);
    for (int i = 0; i < ranks; i++) {
        if (status) {
            pici_shared_free(shared[i]);
            shared[i] = NULL;
        }
        if (status && i != rank)
            shutdown(fds[i], SHUT_RDWR);
        if (pairs.made && pairs.made[i] >= 0)
            close(pairs.made[i]);
    }
    *failures = pairs.failures;
    free(pairs.sides);
    free(pairs.made);
    free(pairs.bytes);
    return status;
}
