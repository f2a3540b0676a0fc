/* SPDX-License-Identifier: BSD-3-Clause */
#include "policy.h"

#include "format.h"

float pici_policy_default(enum policy_link link, enum pici_format format)
{
    static const float pici[POLICY_LINKS] = {0.5F, 0.6F, 0.1F}, coo[POLICY_LINKS] = {0.6F, 0.7F, 0.5F};
    if (format == PICI_DENSE)
        return 1;
    return (format == PICI_COO ? coo : pici)[link];
}

double pici_policy_sparsity(uint64_t nnz, uint64_t n)
{
    return n ? (double)(n - nnz) / (double)n : 1;
}

int pici_policy_dense(double sparsity, float threshold)
{
    return threshold > 0 && (float)sparsity <= threshold;
}

void pici_policy_begin(struct policy_chain *c)
{
    *c = (struct policy_chain){0};
}

int pici_policy_count(const struct policy_chain *c, float threshold, double *density)
{
    *density = POLICY_UNKNOWN;
    if (pici_policy_dense(1, threshold))
        return 0;
    if (!c->last_dense || c->doubted)
        return 1;
    *density = c->last + c->first * (1 - c->last); /* so written, rounding cannot make it fall */
    return !pici_policy_dense(1 - *density, threshold);
}

void pici_policy_sent(struct policy_chain *c, double density, int dense)
{
    c->doubted = 0;
    if (density < 0)
        return;
    if (!c->sends++)
        c->first = density;
    c->last = density;
    c->last_dense = dense;
}

void pici_policy_received(struct policy_chain *c, int dense)
{
    c->doubted |= !dense;
}

size_t pici_policy_bytes(enum pici_format format, enum pici_dtype dtype, const uint64_t *n, const uint64_t *nnz,
                         int blocks)
{
    size_t bytes = 0;
    if ((unsigned)format > FMT_COO || fmt_width_log2((unsigned)dtype) < 0)
        return 0;
    for (int i = 0; i < blocks; i++) {
        struct fmt_layout l;
        if (!fmt_layout(&l, (unsigned)format, (unsigned)dtype, n[i], format == PICI_DENSE ? n[i] : nnz[i]) ||
            l.block_bytes > SIZE_MAX - bytes)
            return 0;
        bytes += (size_t)l.block_bytes;
    }
    return bytes;
}

enum pici_format pici_policy_format(enum pici_format format, enum pici_dtype dtype, const uint64_t *n,
                                    const uint64_t *nnz, int blocks)
{
    if (format != PICI_AUTO)
        return format;
    enum pici_format best = PICI_DENSE;
    size_t least = SIZE_MAX;
    for (unsigned f = FMT_DENSE; f <= FMT_COO; f++) {
        size_t bytes = pici_policy_bytes((enum pici_format)f, dtype, n, nnz, blocks);
        if (bytes && bytes < least) {
            least = bytes;
            best = (enum pici_format)f;
        }
    }
    return best;
}
