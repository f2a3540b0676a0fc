/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compare collectives with lossy codecs on buffers in GPU memory and in host memory, with messages in GPU memory and in
 * pinned memory. Also messages that change on their way, and rejected calls. */
#include "cuda_values_team.cuh"

extern "C" {
#include "coll/message.h"
#include "tests/util/transport.h"
}

static void all_codecs(bool quick)
{
    const int cases = thorough ? 80 : quick ? 4 : 21;
    unsigned turn = 0;
    for (int p : {1, 2, 3, 4, 5, 7}) {
        some_cases(team(p, true), 2, true, cases, &turn);
        some_cases(team(p, false), 2, false, cases, &turn);
    }
}

/* ---- messages that were changed */

struct liar {
    struct pici_transport inner;
    size_t at, bytes; /* the byte that is changed, and the message's length */
    unsigned seen;    /* coded messages */
    uint8_t change;
    bool cut;     /* instead, the message ends there */
    bool shorter; /* instead, its last array has an element less */
};

/* Put a valid block in the place of a message's last one: of zeros, one fewer. Returns the message's length. */
static size_t shorten(uint8_t *message, size_t bytes, size_t cap)
{
    struct pici_block b;
    const std::vector<uint64_t> zeros(cap);
    size_t at = MSG_BYTES, len = 0;
    while (pici_block_parse(&b, message + at, bytes - at, NULL) == PICI_OK && at + b.layout.block_bytes < bytes)
        at += (size_t)b.layout.block_bytes;
    tally(pici_compress(message + at, cap - at, &len, zeros.data(), b.count - 1, (enum pici_dtype)b.dtype, PICI_DENSE,
                        NULL) == PICI_OK,
          "a block with an element less");
    return at + len;
}

static enum pici_status lie(void *context, int to, const void *data, size_t bytes, void **request)
{
    enum { KIND = 4, MOST = 4096 };
    static uint8_t copies[MOST];
    struct liar *l = (struct liar *)context;
    if (bytes <= KIND || bytes > MOST || ((const uint8_t *)data)[KIND] != MSG_CODED || l->seen++)
        return l->inner.send(l->inner.context, to, data, bytes, request);
    l->bytes = bytes;
    memcpy(copies, data, bytes);
    if (l->shorter)
        bytes = shorten(copies, bytes, sizeof copies);
    else if (l->at < bytes && !l->cut)
        copies[l->at] ^= l->change;
    return l->inner.send(l->inner.context, to, copies, l->cut && l->at < bytes ? l->at : bytes, request);
}

/* A call of two ranks, of which one lies in its first coded message. Its results, if it succeeds. */
static std::vector<enum pici_status> deceived(struct liar *l, const struct values_case *c, bool gpu,
                                              std::vector<uint8_t> *results)
{
    team t(2, false);
    std::vector<struct rank> all;
    transport_wrap(&t.comms[1]->transport, &l->inner);
    t.comms[1]->transport.context = l;
    t.comms[1]->transport.send = lie;
    l->seen = 0;
    const std::vector<enum pici_status> status = call(t, all, c, gpu);
    results->clear();
    for (struct rank &k : all) {
        results->insert(results->end(), k.at.recv, k.at.recv + k.room);
        drop(&k);
    }
    t.comms[1]->transport = l->inner;
    return status;
}

/* Every byte of a message is changed, and it is cut at every byte: the GPU finds wrong what the host does, and else
 * makes the same of it. Returns how many calls had a result. */
static unsigned changed(const struct values_case *c, size_t step)
{
    struct liar l = {};
    std::vector<uint8_t> there, here;
    unsigned corrupt = 0, fine = 0;
    l.at = SIZE_MAX;
    deceived(&l, c, false, &there);
    const size_t bytes = l.bytes;
    for (size_t at = 0; at < 2 * bytes; at += step) {
        l.at = at % bytes;
        l.cut = at >= bytes;
        l.change = (uint8_t)(at % 2 ? 0x80 : 1 + rng_below(&rng, 255));
        const std::vector<enum pici_status> want = deceived(&l, c, false, &there), got = deceived(&l, c, true, &here);
        tally(l.bytes == bytes, "a message of %zu bytes, not %zu", l.bytes, bytes);
        for (size_t i = 0; i < 2; i++)
            tally(got[i] == want[i], "%s: byte %zu of %zu %s %02x: rank %zu: %s, on the host %s", values_words(c, 2),
                  l.at, bytes, l.cut ? "cut" : "changed by", l.change, i, pici_strerror(got[i]),
                  pici_strerror(want[i]));
        corrupt += want[0] == PICI_E_CORRUPT;
        fine += !want[0];
        tally(want[0] || differ(here.data(), there.data(), there.size(), c->dtype) == 0,
              "%s: byte %zu of %zu changed by %02x: another result", values_words(c, 2), l.at, bytes, l.change);
    }
    l.at = SIZE_MAX;
    l.shorter = true;
    for (enum pici_status s : deceived(&l, c, true, &here))
        tally(s == PICI_E_CORRUPT, "%s: an array with an element less: %s", values_words(c, 2), pici_strerror(s));
    tally(corrupt > 9, "changed messages: %u are corrupt", corrupt);
    tally(cudaGetLastError() == cudaSuccess, "after changed messages");
    return fine;
}

static void hostile(bool quick)
{
    static const enum pici_format formats[] = {PICI_DENSE, PICI_HYBRID, PICI_BITMAP};
    const size_t step = thorough ? 1 : quick ? 29 : 5;
    unsigned fine = 0;
    for (int i = 0; i < codecs(); i++) {
        struct values_case c = {};
        c.values = values_codec(i, &c.dtype);
        c.collective = i % 3 ? PICI_ALL_REDUCE : PICI_ALL_GATHER;
        c.algorithm = i % 2 ? PICI_ALGO_DOUBLING : PICI_ALGO_RING;
        if (c.collective == PICI_ALL_GATHER)
            c.algorithm = PICI_ALGO_RING;
        c.count = 301;
        c.seed = (uint64_t)i;
        c.format = formats[i % 3];
        c.residual = i % 2;
        c.timeout_ms = 60000;
        if (i % 4 == 2) { /* what is placed, with zeros whose signs can be changed */
            c.values.phases = 2;
            c.collective = PICI_ALL_REDUCE;
            c.data = DATA_SPARSE;
            c.format = PICI_DENSE;
        }
        fine += changed(&c, step);
    }
    tally(fine > 9, "changed messages: %u calls had results", fine);
}

/* ---- what is refused */

static void refused(void)
{
    enum { N = 5000 };
    struct values_case c = {};
    std::vector<struct rank> all;
    c.dtype = PICI_F32;
    c.collective = PICI_ALL_REDUCE;
    c.algorithm = PICI_ALGO_SPLIT;
    c.count = N;
    c.values.size = sizeof c.values;
    c.values.codec = PICI_VALUES_ZFP;
    c.values.rate = 8;
    {
        team t(3, true);
        for (enum pici_status s : call(t, all, &c, true))
            tally(s == PICI_E_UNSUPPORTED, "ZFP: %s", pici_strerror(s));
        for (struct rank &k : all)
            drop(&k);
        if (values_codecs() > codecs())
            tally(strstr(pici_comm_error(t.comms[0]), "ZFP") != NULL, "words: %s", pici_comm_error(t.comms[0]));
        else
            printf("skip: ZFP, which this library does not have\n");
    }
    c.values.codec = PICI_VALUES_QSGD;
    for (int where = 0; where < 2; where++) { /* the residual is in the host's memory, or not aligned */
        team t(2, true);
        std::vector<float> host(N);
        buffer data(2 * N * 4), device(2 * N * 4 + 8);
        std::vector<struct pici_request *> requests(2);
        for (size_t i = 0; i < 2; i++) {
            struct pici_coll_opts o = PICI_COLL_OPTS_INIT;
            struct pici_values values = c.values;
            uint8_t *const at = data.at + i * N * 4;
            o.values = &values;
            values.residual = i == 0 ? NULL : where ? (void *)(device.at + 2) : host.data();
            pici_all_reduce_start(at, at, N, PICI_F32, PICI_SUM, t.comms[i], &o, &requests[i]);
        }
        for (enum pici_status s : drive(requests))
            tally(s == PICI_E_ARG, "a residual that cannot be used: %s", pici_strerror(s));
    }
    tally(cudaGetLastError() == cudaSuccess, "after what is refused");
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    const bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    thorough = on_gpu && !quick;
    rng.state = argc > 1 && argv[1][0] != '-' ? strtoull(argv[1], NULL, 0) : 1;
    if (!device_begin())
        return 77;
#ifdef PICI_DEVICE_HW
    emu::seed(rng.state);
    emu::defer(rng.state);
    emu::watch_races(true); /* of what is lost, which cuda_values does not ask for */
#endif
    refused();
    hostile(quick);
    all_codecs(quick);
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
