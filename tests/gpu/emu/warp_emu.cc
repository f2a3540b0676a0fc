/* SPDX-License-Identifier: BSD-3-Clause */
#include "warp_emu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "banks.h"
#include "device_map.h"
#include "fiber_switch.h"

#ifdef EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace emu {
namespace {

#ifdef EMU_ASAN
constexpr bool ASAN = true;
constexpr size_t STACK = 256 << 10;
#else
constexpr bool ASAN = false;
constexpr size_t STACK = 64 << 10;
#endif
constexpr size_t STACKS = 2 << 20; /* bytes that are mapped at once, one huge page where there are such */
constexpr uint64_t UNTOUCHED = UINT64_C(0x5f3c9a1e77d2b846); /* at the end of each stack */
constexpr uint64_t TOO_LONG =
    3u * 1000 * 1000;          /* switches of fibers without a barrier or another meeting: then the launch fails */
constexpr unsigned STAY = 512; /* at most so many switches, then fibers of another warp run */
constexpr unsigned ROAMS = 8;  /* one launch of so many changes to another warp at each switch */

/* The last use of a byte of shared memory: by which thread, and after which barrier. Small: each byte has two, and
 * caches should hold them. */
struct use {
    uint32_t tick = 0; /* before that of the block's begin: there was no use */
    uint16_t thread = 0;
    uint16_t line : 15, atomic : 1; /* atomic: of writes */
    use() : line(0), atomic(0)
    {
    }
    bool operator==(const use &o) const
    {
        return tick == o.tick && thread == o.thread && line == o.line && atomic == o.atomic;
    }
};
/* For `thread`: two or more threads, and those of one warp, plus the warp's number. */
constexpr unsigned MANY = 0xffff, MANY_OF_WARP = 0x8000;

struct byte_state {
    use read, write;
};

struct block;
struct warp;

/* Bytes that are to be copied to shared memory. */
struct late_copy {
    uint8_t *to, bytes[16];
    unsigned count, line;
};

struct alignas(64) fiber {
    thread_id id;
    bool started = false, ended = false; /* started: `at` is valid */
    block *in = nullptr;
    warp *of = nullptr;
    uint8_t *stack = nullptr;
    device_thread device;
    std::vector<late_copy> copies; /* begun, and not waited for */
    context at;
    void *fake = nullptr;
    bank_thread banks;
};

/* Where lanes meet. */
struct meeting {
    op what = SHFL;
    unsigned mask = 0, line = 0;
    bool operator==(const meeting &o) const
    {
        return what == o.what && mask == o.mask && line == o.line;
    }
};

struct alignas(64) warp {
    block *in = nullptr;
    size_t slot = 0;                          /* index among the warps with a lane that can run */
    uint32_t tick = 0;                        /* of its last barrier */
    unsigned number = 0, ready = 0, gone = 0; /* these and the next are masks of lanes; gone: ended, or never there */
    unsigned waiting = 0, syncing = 0;        /* in a meeting of the warp, or in one of the block */
    unsigned alike = 0;                       /* those that wait in the meeting `first` */
    meeting first;
    fiber *fibers[32] = {};
    meeting at[32]; /* the last of each lane */
    unsigned arg[32];
    uint64_t value[32]; /* and then the result */
};

struct block {
    std::vector<warp> warps;
    unsigned threads = 0, alive = 0, syncing = 0, sync_line = 0;
    uint32_t begin = 0, tick = 0; /* tick: of its last barrier */
    size_t bytes = 0;             /* of shared memory, and of its state */
    std::unique_ptr<uint8_t[]> memory;
    uint8_t *shared = nullptr;
    std::vector<byte_state> state;
    uint64_t number = 0;
};

struct world {
    std::string error;
    uint64_t random = 1;
    unsigned resident = 3;
    const std::function<void()> *kernel = nullptr;
    std::vector<warp *> ready;
    warp *in = nullptr; /* that whose fibers run, until the counter `stay` is 0 */
    unsigned stay = 0;
    bool roams = false;
    fiber *now = nullptr, *next = nullptr;
    context scheduler;
    void *scheduler_fake = nullptr;
    const void *scheduler_stack = nullptr;
    size_t scheduler_bytes = 0;
    std::vector<std::unique_ptr<fiber>> all;
    std::vector<fiber *> free;
    std::vector<std::vector<byte_state>> states; /* of blocks that have ended */
    uint64_t blocks = 0;                         /* so far */
    uint32_t tick = 1;                           /* barriers so far, and begins of blocks */
    uint64_t idle = 0;
    bool failed = false;
    bool watching = true;     /* for races in device memory */
    unsigned until_yield = 1; /* accesses to device memory */
    device_map device;
    bool counting = false;
    bank_counter banks;
} w;

uint64_t next_random()
{
    return emu::next_random(w.random);
}

void make_fibers()
{
    uint8_t *p = (uint8_t *)mmap(nullptr, 2 * STACKS, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        abort();
    p += (STACKS - (uintptr_t)p % STACKS) % STACKS;
#ifdef MADV_HUGEPAGE
    if (!ASAN)
        (void)madvise(p, STACKS, MADV_HUGEPAGE);
#endif
    for (size_t at = 0; at < STACKS; at += STACK) {
        w.all.emplace_back(new fiber);
        w.all.back()->stack = p + at;
        memcpy(p + at, &UNTOUCHED, sizeof UNTOUCHED);
        w.free.push_back(w.all.back().get());
    }
}

void make_ready(warp *v, unsigned lanes)
{
    if (!v->ready) {
        v->slot = w.ready.size();
        w.ready.push_back(v);
    }
    v->ready |= lanes;
    w.idle = 0;
}

void make_unready(warp *v, unsigned lanes)
{
    v->ready &= ~lanes;
    if (v->ready)
        return;
    w.ready[v->slot] = w.ready.back();
    w.ready[v->slot]->slot = v->slot;
    w.ready.pop_back();
}

/* The fiber that runs next, or null: none can, or they have run too long. Which one is random. For some time, those of
 * one warp run, since their stacks are in the cache then; but any order is possible. */
fiber *choose()
{
    if (w.ready.empty() || w.idle > TOO_LONG)
        return nullptr;
    w.idle++;
    uint64_t r = next_random();
    if (!w.in || !w.in->ready || w.stay == 0) {
        w.in = w.ready[(r & 0xffffff) % w.ready.size()];
        w.stay = w.roams ? 1 : 1 + (r >> 24) % STAY;
    }
    w.stay--;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned lane = r >> 32 >> 5 * i & 31;
        if (w.in->ready >> lane & 1)
            return w.in->fibers[lane];
    }
    const unsigned from = r >> 52 & 31, at_least = w.in->ready & 0xffffffffu << from;
    return w.in->fibers[__builtin_ctz(at_least ? at_least : w.in->ready)];
}

/* ---- switching between fibers and the scheduler ---- */

void entered()
{
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(w.now->fake, &w.scheduler_stack, &w.scheduler_bytes);
#endif
}

/* Let another fiber run, or the scheduler; returns when this fiber runs again. */
void leave(fiber *f)
{
    fiber *const next = w.failed || f->ended ? nullptr : choose();
    if (next == f)
        return;
    if (!ASAN && next && next->started) {
        w.now = next;
        return switch_to(f->at, next->at);
    }
    w.next = next;
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(f->ended ? nullptr : &f->fake, w.scheduler_stack, w.scheduler_bytes);
#endif
    switch_to(f->at, w.scheduler);
    entered();
}

/* A thread, and then those of later blocks that get this fiber. */
void fiber_main()
{
    fiber *f = w.now;
    f->fake = nullptr;
    entered();
    for (;;) {
        (*w.kernel)();
        if (!f->copies.empty() && !w.failed)
            fail("line %u: a thread ends before its copy to shared memory", f->copies[0].line);
        f->ended = true;
        leave(f);
    }
}

/* Run f, and maybe others. Returns the fiber that left for the scheduler. */
fiber *run(fiber *f)
{
    w.now = f;
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(&w.scheduler_fake, f->stack, STACK);
#endif
    if (f->started) {
        switch_to(w.scheduler, f->at);
    } else { /* those of a warp begin at different places of the cache */
        f->started = true;
        switch_to_new(w.scheduler, f->stack, STACK - f->id.thread % 32 * 128, fiber_main);
    }
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(w.scheduler_fake, nullptr, nullptr);
#endif
    f = w.now;
    w.now = nullptr;
    return f;
}

const char *const names[] = {"shfl", "shfl_up", "shfl_down", "ballot", "syncwarp", "syncthreads"};

void set_error(const char *format, va_list args)
{
    char text[400];
    vsnprintf(text, sizeof text, format, args);
    if (!w.failed) {
        w.error = text;
        if (w.now) {
            const thread_id &t = w.now->id;
            w.error += " (block " + std::to_string(t.block_x) + "," + std::to_string(t.block_y) + " thread " +
                       std::to_string(t.thread) + ")";
        }
    }
    w.failed = true;
}

void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_error(format, args);
    va_end(args);
}

position position_of(const fiber *f)
{
    return position{f->in->number, f->id.thread, f->of->number, f->in->tick, f->of->tick};
}

/* The number of the warp, or another number: of several. */
unsigned warp_of(const use &u)
{
    return u.thread < MANY_OF_WARP ? u.thread / 32 : u.thread - MANY_OF_WARP;
}

/* Does a barrier order the use before what f does now? */
bool ordered(const use &u, const fiber *f)
{
    return u.tick <= f->in->tick || u.thread == f->id.thread || (u.tick <= f->of->tick && warp_of(u) == f->of->number);
}

/* A barrier of some warps: what one thread knows to precede, all know. */
void share(warp *first, size_t count)
{
    releases known;
    for (warp *v = first; v < first + count; v++)
        for (fiber *f : v->fibers)
            if (f) {
                if (f->device.known)
                    known = device_map::join(known, f->device.known);
                f->device.segment = 0;
            }
    for (warp *v = first; known && v < first + count; v++)
        for (fiber *f : v->fibers)
            if (f)
                f->device.known = known;
}

void wake(warp *v, unsigned lanes)
{
    v->waiting &= ~lanes;
    v->alike &= ~lanes;
    make_ready(v, lanes);
    for (unsigned l = 0; w.counting && l < 32; l++)
        if (lanes >> l & 1)
            v->fibers[l]->banks.step++;
}

/* All lanes of the mask have arrived: give each its result. */
void complete_warp(warp *v, const meeting &m)
{
    uint64_t value[32];
    unsigned votes = 0;
    memcpy(value, v->value, sizeof value);
    if (m.what == BALLOT)
        for (unsigned l = 0; l < 32; l++)
            votes |= (m.mask >> l & 1 && value[l] ? 1u : 0u) << l;
    for (unsigned l = 0; m.what != SYNCWARP && l < 32; l++) {
        if (!(m.mask >> l & 1))
            continue;
        unsigned from = l;
        if (m.what == SHFL)
            from = v->arg[l] % 32;
        else if (m.what == SHFL_UP)
            from = v->arg[l] > l ? l : l - v->arg[l];
        else if (m.what == SHFL_DOWN)
            from = l + v->arg[l] > 31 ? l : l + v->arg[l];
        if (!(m.mask >> from & 1))
            return say("%s at line %u: lane %u reads lane %u, which is not in mask %08x", names[m.what], m.line, l,
                       from, m.mask);
        v->value[l] = m.what == BALLOT ? votes : value[from];
    }
    if (m.what == SYNCWARP && m.mask == 0xffffffffu) {
        v->tick = w.tick++;
        share(v, 1);
    }
    wake(v, m.mask);
}

/* A thread has arrived at a barrier of its block, at the line: if all have, let them go on. */
void arrived_in_block(block *b, unsigned line)
{
    if (b->alive < b->threads || (b->syncing && b->sync_line != line))
        for (const warp &v : b->warps)
            for (unsigned l = 0; l < 32; l++) {
                if (!v.fibers[l])
                    continue;
                if (v.gone >> l & 1)
                    return say("syncthreads at line %u: thread %u has ended", line, v.fibers[l]->id.thread);
                if (v.syncing >> l & 1 && v.at[l].line != line)
                    return say("syncthreads at line %u: thread %u is in that at line %u", line, v.fibers[l]->id.thread,
                               v.at[l].line);
            }
    b->sync_line = line;
    if (++b->syncing < b->threads)
        return;
    b->syncing = 0;
    b->tick = w.tick++;
    share(b->warps.data(), b->warps.size());
    for (warp &v : b->warps) {
        wake(&v, v.syncing);
        v.syncing = 0;
    }
}

/* The lane has arrived and waits: if all that it waits for have arrived, let them go on. */
void arrived(warp *v, unsigned lane, const meeting &m)
{
    const unsigned bit = 1u << lane;
    if (m.what == SYNCTHREADS) {
        v->syncing |= bit;
        return arrived_in_block(v->in, m.line);
    }
    if (!v->waiting) {
        v->first = m;
        v->alike = 0;
    }
    v->waiting |= bit;
    if (m == v->first)
        v->alike |= bit;
    if (!(m.mask & bit))
        return say("%s at line %u: lane %u is not in its own mask %08x", names[m.what], m.line, lane, m.mask);
    if (m.mask & v->gone || m.mask & v->waiting & ~(bit & v->alike ? v->alike : 0))
        for (unsigned l = 0; l < 32; l++) {
            if (!(m.mask >> l & 1))
                continue;
            if (v->gone >> l & 1)
                return say("%s at line %u: lane %u of mask %08x has ended", names[m.what], m.line, l, m.mask);
            const meeting &o = v->at[l];
            if (v->waiting >> l & 1 && !(o == m))
                return say("%s at line %u, mask %08x: lane %u is in %s at line %u, mask %08x", names[m.what], m.line,
                           m.mask, l, names[o.what], o.line, o.mask);
        }
    if (!(m.mask & ~v->waiting))
        complete_warp(v, m);
}

/* A thread has ended: does one wait for it? */
void ended(const fiber *f)
{
    const unsigned lane = f->id.thread % 32;
    for (const warp &v : f->in->warps)
        for (unsigned l = 0; (v.syncing || (&v == f->of && v.waiting)) && l < 32; l++)
            if (v.syncing >> l & 1 || (&v == f->of && v.waiting >> l & 1 && v.at[l].mask >> lane & 1))
                say("%s at line %u of thread %u: thread %u has ended", names[v.at[l].what], v.at[l].line,
                    v.fibers[l]->id.thread, f->id.thread);
}

/* No fiber can run: report which ones wait for which. */
void deadlock(const std::vector<std::unique_ptr<block>> &blocks)
{
    for (auto &b : blocks)
        for (const warp &v : b->warps)
            for (unsigned i = 0; i < 32; i++)
                for (unsigned l = 0; v.waiting >> i & 1 && l < 32; l++) {
                    const meeting &m = v.at[i], &o = v.at[l];
                    if (m.mask >> l & 1 && (v.gone >> l & 1 || o.what != m.what || o.line != m.line))
                        return say("%s at line %u: lane %u of mask %08x never arrives (block %u thread %u waits)",
                                   names[m.what], m.line, l, m.mask, v.fibers[i]->id.block_x, v.fibers[i]->id.thread);
                }
    say("deadlock");
}

std::unique_ptr<block> begin_block(unsigned x, unsigned y, unsigned grid_x, unsigned threads, size_t bytes)
{
    std::unique_ptr<block> b(new block);
    b->warps.resize((threads + 31) / 32);
    b->threads = b->alive = threads;
    b->memory.reset(new uint8_t[bytes + 16]);
    b->shared = (uint8_t *)(((uintptr_t)b->memory.get() + 15) & ~(uintptr_t)15);
    memset(b->shared, (int)(next_random() & 255), bytes);
    if (!w.states.empty()) {
        b->state.swap(w.states.back());
        w.states.pop_back();
    }
    if (b->state.size() < bytes)
        b->state.resize(bytes);
    b->bytes = bytes;
    b->number = ++w.blocks;
    b->begin = b->tick = w.tick++;
    for (unsigned n = 0; n < b->warps.size(); n++) {
        warp *v = &b->warps[n];
        v->in = b.get();
        v->number = n;
        for (unsigned l = 0; l < 32 && n * 32 + l < threads; l++) {
            if (w.free.empty())
                make_fibers();
            fiber *f = v->fibers[l] = w.free.back();
            w.free.pop_back();
            f->id = thread_id{n * 32 + l, threads, x, y, grid_x};
            f->in = b.get();
            f->of = v;
            f->ended = false;
        }
        const unsigned lanes = threads - n * 32 < 32 ? (1u << (threads - n * 32)) - 1 : 0xffffffffu;
        v->gone = ~lanes;
        make_ready(v, lanes);
    }
    return b;
}

void end_block(block *b)
{
    for (auto v = b->warps.rbegin(); v != b->warps.rend(); ++v)
        for (unsigned l = 32; l--;) {
            fiber *f = v->fibers[l];
            if (!f)
                continue;
            if (memcmp(f->stack, &UNTOUCHED, sizeof UNTOUCHED) != 0) {
                fprintf(stderr, "warp_emu: a thread needs more stack\n");
                abort();
            }
            f->started = f->started && f->ended && !ASAN;
            f->device = device_thread();
            if (f->banks.step)
                f->banks = bank_thread();
            f->copies.clear();
            w.free.push_back(f);
        }
    w.states.push_back(std::move(b->state));
}

} // namespace

uint64_t next_random(uint64_t &state)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

const thread_id &self()
{
    return w.now->id;
}

uint8_t *shared_memory()
{
    return w.now->in->shared;
}

const char *error()
{
    return w.error.c_str();
}

void seed(uint64_t s)
{
    w.random = s;
}

void resident(unsigned blocks)
{
    w.resident = blocks;
}

void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    set_error(format, args);
    va_end(args);
    leave(w.now); /* and never return */
    abort();
}

uint64_t meet(op what, unsigned mask, uint64_t value, unsigned arg, unsigned line)
{
    fiber *f = w.now;
    warp *v = f->of;
    const unsigned lane = f->id.thread % 32;
    const meeting m = {what, mask, line};
    v->at[lane] = m;
    v->value[lane] = value;
    v->arg[lane] = arg;
    make_unready(v, 1u << lane);
    arrived(v, lane, m);
    leave(f);
    return v->value[lane];
}

void yield()
{
    w.stay = 0;
    leave(w.now);
}

void maybe_yield()
{
    if (next_random() % 4 == 0)
        yield();
}

void aligned(const void *p, size_t bytes, unsigned line)
{
    if ((uintptr_t)p % bytes)
        fail("line %u: address %p is not aligned to %zu", line, p, bytes);
}

void touch_shared(const void *p, size_t bytes, bool write, bool atomic, unsigned line)
{
    fiber *f = w.now;
    block *b = f->in;
    const size_t at = (size_t)((uintptr_t)p - (uintptr_t)b->shared);
    if ((uintptr_t)p < (uintptr_t)b->shared || at + bytes > b->bytes)
        fail("line %u: outside shared memory", line);
    if (w.counting)
        w.banks.use(f->banks, b->number, f->id.thread, at, bytes, line);
    use u;
    u.tick = w.tick;
    u.line = line & 0x7fff;
    u.atomic = atomic;
    byte_state *s = &b->state[at], old, made; /* of the byte before: as it was, and as it is now */
    for (size_t i = at; i < at + bytes; i++, s++) {
        if (i > at && s->write == old.write && s->read == old.read) {
            *s = made;
            continue;
        }
        old = *s;
        const bool written = s->write.tick > b->begin, both = atomic && written && s->write.atomic;
        if (!both && !ordered(s->write, f))
            fail("race in shared memory: thread %u wrote byte %zu at line %u, now %s at line %u", s->write.thread, i,
                 s->write.line, write ? "written" : "read", line);
        if (write && !both && !ordered(s->read, f))
            fail("race in shared memory: thread %u read byte %zu at line %u, now written at line %u", s->read.thread, i,
                 s->read.line, line);
        if (!write && !written)
            fail("line %u: reads byte %zu of shared memory, which was not written", line, i);
        u.thread = (uint16_t)f->id.thread;
        if (write) {
            s->write = u;
            s->read = use();
        } else {
            if (!ordered(s->read, f)) /* two unordered reads: a later write must be ordered after both */
                u.thread = (uint16_t)(warp_of(s->read) == f->of->number ? MANY_OF_WARP + f->of->number : MANY);
            s->read = u;
        }
        made = *s;
    }
}

void touch_device(const void *p, size_t bytes, device_use how, unsigned line)
{
    fiber *f = w.now;
    if ((uintptr_t)p - (uintptr_t)f->stack < STACK) /* a thread's own variable */
        return;
    if (--w.until_yield == 0) {
        w.until_yield = 1 + (unsigned)(next_random() % 127);
        yield();
    }
    if (!w.watching)
        return;
    {
        const std::string race = w.device.use(f->device, position_of(f), p, bytes, how, line);
        if (race.empty())
            return;
        say("%s", race.c_str());
    }
    leave(f); /* and never return */
    abort();
}

void copy_later(void *to, const void *bytes, size_t count, unsigned line)
{
    touch_shared(to, count, true, false, line);
    late_copy c = {(uint8_t *)to, {}, (unsigned)count, line};
    memcpy(c.bytes, bytes, count);
    for (size_t i = 0; i < count; i++)
        c.to[i] = (uint8_t)next_random();
    w.now->copies.push_back(c);
}

void copy_now()
{
    for (const late_copy &c : w.now->copies) {
        touch_shared(c.to, c.count, true, false, c.line);
        memcpy(c.to, c.bytes, c.count);
    }
    w.now->copies.clear();
}

void fence()
{
    w.device.fence(w.now->device, position_of(w.now));
}

void watch_races(bool on)
{
    w.watching = on;
}

void in_step()
{
    w.now->banks.step++;
}

void count_banks(bool on)
{
    w.counting = on;
    w.banks = bank_counter();
}

bank_tally banks()
{
    return w.banks.total();
}

std::string lacking(unsigned grid_x, unsigned grid_y, unsigned threads, size_t shared_bytes)
{
    if (!grid_x || grid_x > INT32_MAX || !grid_y || grid_y > GRID_Y_MOST)
        return "a grid of " + std::to_string(grid_x) + " by " + std::to_string(grid_y) + " thread blocks";
    if (!threads || threads > THREADS_MOST)
        return std::to_string(threads) + " threads in a thread block";
    if (shared_bytes > SHARED_MOST)
        return std::to_string(shared_bytes) + " bytes of shared memory in a thread block, which can have " +
               std::to_string(SHARED_MOST);
    return "";
}

bool launch(unsigned grid_x, unsigned grid_y, unsigned threads, size_t shared_bytes,
            const std::function<void()> &kernel)
{
    w.failed = false;
    w.error.clear();
    const std::string lack = lacking(grid_x, grid_y, threads, shared_bytes);
    if (!lack.empty()) {
        say("launch: %s", lack.c_str());
        return false;
    }
    std::vector<unsigned> order(grid_x * grid_y);
    for (size_t i = 0; i < order.size(); i++)
        order[i] = (unsigned)i;
    for (size_t i = order.size(); i > 1; i--)
        std::swap(order[i - 1], order[next_random() % i]);

    std::vector<std::unique_ptr<block>> blocks;
    size_t begun = 0;
    w.idle = 0;
    w.ready.clear();
    w.in = nullptr;
    w.next = nullptr;
    w.roams = next_random() % ROAMS == 0;
    w.kernel = &kernel;
    w.device.begin();
    if (w.tick > UINT32_MAX / 2) {
        w.tick = 1;
        w.states.clear();
    }
    while (!w.failed) {
        while (blocks.size() < w.resident && begun < order.size()) {
            const unsigned i = order[begun++];
            blocks.push_back(begin_block(i % grid_x, i / grid_x, grid_x, threads, shared_bytes));
        }
        if (blocks.empty())
            break;
        fiber *f = w.next ? w.next : choose();
        w.next = nullptr;
        if (!f) {
            if (w.ready.empty())
                deadlock(blocks);
            else
                say("no thread makes progress");
            break;
        }
        f = run(f);
        if (!f->ended || w.failed)
            continue;
        block *b = f->in;
        const unsigned bit = 1u << f->id.thread % 32;
        make_unready(f->of, bit);
        f->of->gone |= bit;
        w.idle = 0;
        ended(f);
        if (--b->alive == 0) {
            if (w.in && w.in->in == b)
                w.in = nullptr;
            end_block(b);
            blocks.erase(std::find_if(blocks.begin(), blocks.end(),
                                      [b](const std::unique_ptr<block> &p) { return p.get() == b; }));
        }
    }
    for (auto &b : blocks)
        end_block(b.get());
    return !w.failed;
}

} // namespace emu
