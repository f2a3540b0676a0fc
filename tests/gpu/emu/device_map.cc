/* SPDX-License-Identifier: BSD-3-Clause */
#include "device_map.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

namespace emu {
namespace {

constexpr unsigned SEVERAL = ~0u;                     /* threads, or warps */
constexpr uint64_t SEVERAL_BLOCKS = UINT64_MAX;       /* of whose uses no other is known to come after */
constexpr uint32_t MOST_SEGMENTS = UINT32_C(1) << 30; /* numbers of segments are not used again before */

/* Is a segment, or the release that ends it, ordered before r? */
bool covers(const release &r, const position &of, uint32_t segment)
{
    if (r.at.block != of.block)
        return false;
    return r.at.thread == of.thread
               ? segment <= r.segment
               : of.block_time < r.at.block_time || (of.warp == r.at.warp && of.warp_time < r.at.warp_time);
}

void add(std::vector<release> &to, const release &r)
{
    for (const release &old : to)
        if (covers(old, r.at, r.segment))
            return;
    to.erase(std::remove_if(to.begin(), to.end(), [&](const release &old) { return covers(r, old.at, old.segment); }),
             to.end());
    to.push_back(r);
}

} // namespace

void device_map::begin()
{
    first += (uint32_t)segments.size();
    segments.clear();
    shared.clear();
    several = 0;
    if (first > MOST_SEGMENTS) {
        pages.clear();
        for (auto &c : cache)
            c = {0, nullptr};
        first = 1;
    }
    add_segment(position{SEVERAL_BLOCKS, SEVERAL, SEVERAL, 0, 0});
}

uint32_t device_map::add_segment(const position &at)
{
    segments.push_back(at);
    return first + (uint32_t)segments.size() - 1;
}

uint32_t device_map::segment_of(device_thread &t, const position &at)
{
    if (t.segment < first)
        t.segment = add_segment(at);
    return t.segment;
}

releases device_map::join(const releases &a, const releases &b)
{
    if (!b || a == b)
        return a;
    if (!a)
        return b;
    std::vector<release> all = *a;
    for (const release &r : *b)
        add(all, r);
    return std::make_shared<const std::vector<release>>(std::move(all));
}

/* Is a segment's every use ordered before what a thread does next? */
bool device_map::before(uint32_t segment, const device_thread &t, const position &at) const
{
    const position &of = segments[segment - first];
    if (of.block == at.block)
        return of.thread == at.thread || of.block_time < at.block_time ||
               (of.warp == at.warp && of.warp_time < at.warp_time);
    return t.known &&
           std::any_of(t.known->begin(), t.known->end(), [&](const release &r) { return covers(r, of, segment); });
}

/* The same for all atomic and relaxed writes of the word at p. */
bool device_map::writers_before(const void *p, const device_thread &t, const position &at)
{
    for (uintptr_t width : {4, 8}) {
        const auto found = shared.find((uintptr_t)p & ~(width - 1));
        if (found == shared.end())
            continue;
        for (const uint32_t writer : found->second.writers)
            if (!before(writer, t, at))
                return false;
    }
    return true;
}

/* A segment that is ordered before another only if both the given one and the thread's are. */
uint32_t device_map::both(uint32_t segment, const position &at)
{
    const position of = segments[segment - first];
    if (of.block != at.block)
        return first;
    position p = {at.block, SEVERAL, of.warp == at.warp ? at.warp : SEVERAL, at.block_time, at.warp_time};
    const auto same = [&](const position &q) {
        return q.block == p.block && q.thread == SEVERAL && q.block_time == p.block_time &&
               (q.warp == SEVERAL || (q.warp == p.warp && q.warp_time == p.warp_time));
    };
    if (same(of))
        return segment;
    if (several < first || !same(segments[several - first]) || segments[several - first].warp != p.warp)
        several = add_segment(p);
    return several;
}

device_map::cell *device_map::cells(uintptr_t address)
{
    const uintptr_t number = address / PAGE;
    auto &c = cache[number % CACHED];
    if (c.number != number || !c.at) {
        std::unique_ptr<page> &p = pages[number];
        if (!p)
            p.reset(new page);
        c = {number, p.get()};
    }
    return c.at->at + address % PAGE;
}

std::string device_map::words(const char *how, uint32_t other, const char *did, unsigned its_line, const void *p,
                              unsigned line, const position &at) const
{
    const position &of = segments[other - first];
    char who[60], text[300];
    const char *const where = of.block == at.block ? "this" : "another";
    if (of.block == SEVERAL_BLOCKS)
        snprintf(who, sizeof who, "threads of several blocks");
    else if (of.thread == SEVERAL)
        snprintf(who, sizeof who, "threads of %s block", where);
    else
        snprintf(who, sizeof who, "thread %u of %s block", of.thread, where);
    snprintf(text, sizeof text, "race in device memory: %s %s %p, last at line %u, now %s at line %u", who, did, p,
             its_line, how, line);
    return text;
}

std::string device_map::use(device_thread &t, const position &at, const void *p, size_t bytes, device_use how,
                            unsigned line)
{
    const bool atomic = how == RELAXED_LOAD || how == RELAXED_STORE || how == UPDATE;
    const bool reads = how == LOAD || how == RELAXED_LOAD;
    const uint32_t segment = segment_of(t, at), own = segment << 1 | (atomic ? 1 : 0);
    const char *const now = reads ? "read" : "written";
    cell *c = cells((uintptr_t)p), old, made; /* of the byte before: as it was, and as it is now */
    for (size_t i = 0; i < bytes; i++, c++) {
        if (i && c->write == old.write && c->read == old.read) {
            *c = made;
            continue;
        }
        old = *c;
        const uint32_t writer = c->write >> 1, reader = c->read >> 1;
        if (writer >= first && !(atomic && c->write & 1)) {
            if (writer != segment && !before(writer, t, at))
                return words(now, writer, "wrote", c->write_line, (const uint8_t *)p + i, line, at);
            if (c->write & 1 && !writers_before((const uint8_t *)p + i, t, at))
                return words(now, first, "updated", c->write_line, (const uint8_t *)p + i, line, at);
        }
        if (reads) {
            if (reader < first || reader == segment || before(reader, t, at))
                c->read = reader == segment ? own & (c->read | ~UINT32_C(1)) : own;
            else
                c->read = both(reader, at) << 1 | (own & c->read & 1);
            c->read_line = (uint16_t)line;
        } else {
            if (reader >= first && reader != segment && !(atomic && c->read & 1) && !before(reader, t, at))
                return words(now, reader, "read", c->read_line, (const uint8_t *)p + i, line, at);
            c->write = own;
            c->write_line = (uint16_t)line;
            c->read = 0;
        }
        made = *c;
    }
    if (!atomic)
        return "";
    word &w = shared[(uintptr_t)p];
    if (how != RELAXED_STORE)
        t.seen = join(t.seen, w.passes);
    if (how != RELAXED_LOAD) {
        w.passes = how == UPDATE ? join(w.passes, t.released) : t.released;
        w.writers.erase(std::remove_if(w.writers.begin(), w.writers.end(),
                                       [&](uint32_t s) { return s == segment || before(s, t, at); }),
                        w.writers.end());
        w.writers.push_back(segment);
    }
    return "";
}

void device_map::fence(device_thread &t, const position &at)
{
    t.known = join(t.known, t.seen);
    const release own = {at, first + (uint32_t)segments.size() - 1};
    t.released = join(t.known, std::make_shared<const std::vector<release>>(1, own));
    t.segment = 0;
}

} // namespace emu
