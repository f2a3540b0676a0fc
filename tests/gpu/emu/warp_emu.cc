/* SPDX-License-Identifier: BSD-3-Clause */
#include "warp_emu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "banks.h"
#include "device_map.h"

#ifdef EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

namespace emu {
namespace {

constexpr size_t STACK = 256 << 10;
constexpr unsigned NOBODY = ~0u, MANY = ~1u;
constexpr uint64_t TOO_LONG =
    3u * 1000 * 1000; /* switches of fibers without a barrier or another meeting: then the launch fails */

/* The last use of a byte of shared memory: by which thread, and after how many barriers of its block and its warp. */
struct use {
    unsigned thread = NOBODY, warp = NOBODY, line = 0;
    uint64_t block_time = 0, warp_time = 0;
};

struct byte_state {
    use read, write;
    bool atomic = false;
    uint64_t block = 0; /* the thread block; for any other block there was no use */
};

struct block;

/* Bytes that are to be copied to shared memory. */
struct late_copy {
    uint8_t *to;
    std::vector<uint8_t> bytes;
    unsigned line;
};

struct fiber {
    thread_id id;
    block *in = nullptr;
    ucontext_t start;
    jmp_buf at;
    void *stack = nullptr, *fake = nullptr;
    bool started = false, ended = false, waiting = false;
    op what = SHFL;
    unsigned mask = 0, arg = 0, line = 0;
    uint64_t value = 0, result = 0;
    size_t slot = 0; /* index among the fibers that can run */
    device_thread device;
    bank_thread banks;
    std::vector<late_copy> copies; /* begun, and not waited for */
};

struct block {
    std::vector<std::unique_ptr<fiber>> fibers;
    std::vector<uint64_t> warp_time;
    uint64_t time = 0;
    unsigned alive = 0;
    std::unique_ptr<uint8_t[]> memory;
    uint8_t *shared = nullptr;
    std::vector<byte_state> state;
    size_t bytes = 0; /* of shared memory, and of its state */
    uint64_t number = 0;
};

struct world {
    std::string error;
    uint64_t random = 1;
    unsigned resident = 3;
    const std::function<void()> *kernel = nullptr;
    std::vector<fiber *> ready;
    fiber *now = nullptr;
    jmp_buf scheduler;
    void *scheduler_fake = nullptr;
    const void *scheduler_stack = nullptr;
    size_t scheduler_bytes = 0;
    std::vector<void *> stacks; /* free */
    std::vector<std::vector<byte_state>> states;
    uint64_t blocks = 0; /* so far */
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

void *stack_take()
{
    if (w.stacks.empty()) {
        void *p = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            abort();
        return p;
    }
    void *p = w.stacks.back();
    w.stacks.pop_back();
    return p;
}

void make_ready(fiber *f)
{
    f->slot = w.ready.size();
    w.ready.push_back(f);
}

void make_unready(fiber *f)
{
    w.ready[f->slot] = w.ready.back();
    w.ready[f->slot]->slot = f->slot;
    w.ready.pop_back();
}

/* ---- switching between fibers and the scheduler ---- */

void entered()
{
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(w.now->fake, &w.scheduler_stack, &w.scheduler_bytes);
#endif
}

/* Switch to the scheduler; returns when it runs this fiber again. */
void leave(fiber *f)
{
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(f->ended ? nullptr : &f->fake, w.scheduler_stack, w.scheduler_bytes);
#endif
    if (_setjmp(f->at) == 0)
        _longjmp(w.scheduler, 1);
    entered();
}

void fiber_main()
{
    fiber *f = w.now;
    f->fake = nullptr;
    entered();
    (*w.kernel)();
    if (!f->copies.empty() && !w.failed)
        fail("line %u: a thread ends before its copy to shared memory", f->copies[0].line);
    f->ended = true;
    leave(f);
    abort();
}

void run(fiber *f)
{
    w.now = f;
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(&w.scheduler_fake, f->stack, STACK);
#endif
    if (_setjmp(w.scheduler) == 0) {
        if (f->started)
            _longjmp(f->at, 1);
        f->started = true;
        getcontext(&f->start);
        f->start.uc_stack.ss_sp = f->stack;
        f->start.uc_stack.ss_size = STACK;
        f->start.uc_link = nullptr;
        makecontext(&f->start, fiber_main, 0);
        setcontext(&f->start);
    }
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(w.scheduler_fake, nullptr, nullptr);
#endif
    w.now = nullptr;
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
    const unsigned warp = f->id.thread / 32;
    return position{f->in->number, f->id.thread, warp, f->in->time, f->in->warp_time[warp]};
}

/* Does a barrier order the use before what f does now? */
bool ordered(const use &u, const fiber *f)
{
    const unsigned warp = f->id.thread / 32;
    return u.thread == NOBODY || u.thread == f->id.thread || u.block_time < f->in->time ||
           (u.warp == warp && u.warp_time < f->in->warp_time[warp]);
}

/* A barrier of count threads, one of a block or of a warp: what one knows to precede, all know. */
void share(const std::unique_ptr<fiber> *first, size_t count)
{
    releases known;
    for (size_t i = 0; i < count; i++) {
        known = device_map::join(known, first[i]->device.known);
        first[i]->device.segment = 0;
    }
    for (size_t i = 0; known && i < count; i++)
        first[i]->device.known = known;
}

void wake(fiber *f)
{
    f->waiting = false;
    f->banks.step++;
    make_ready(f);
    w.idle = 0;
}

/* All lanes of the mask have arrived: give each its result. */
void complete_warp(block *b, unsigned warp, const fiber *of)
{
    uint64_t value[32] = {0};
    unsigned votes = 0;
    for (unsigned l = 0; l < 32; l++)
        if (of->mask >> l & 1) {
            const fiber *f = b->fibers[warp * 32 + l].get();
            value[l] = f->value;
            votes |= (f->value ? 1u : 0u) << l;
        }
    for (unsigned l = 0; l < 32; l++) {
        if (!(of->mask >> l & 1))
            continue;
        fiber *f = b->fibers[warp * 32 + l].get();
        unsigned from = l;
        if (f->what == SHFL)
            from = f->arg % 32;
        else if (f->what == SHFL_UP)
            from = f->arg > l ? l : l - f->arg;
        else if (f->what == SHFL_DOWN)
            from = l + f->arg > 31 ? l : l + f->arg;
        if (!(of->mask >> from & 1))
            return say("%s at line %u: lane %u reads lane %u, which is not in mask %08x", names[f->what], f->line, l,
                       from, of->mask);
        f->result = f->what == BALLOT ? votes : value[from];
    }
    if (of->what == SYNCWARP && of->mask == 0xffffffffu) {
        b->warp_time[warp]++;
        share(&b->fibers[warp * 32], 32);
    }
    const unsigned mask = of->mask;
    for (unsigned l = 0; l < 32; l++)
        if (mask >> l & 1)
            wake(b->fibers[warp * 32 + l].get());
}

/* f has arrived and waits: if all that it waits for have arrived, let them go on. */
void arrived(fiber *f)
{
    block *b = f->in;
    const unsigned warp = f->id.thread / 32, first = warp * 32;
    if (f->what == SYNCTHREADS) {
        for (auto &o : b->fibers) {
            if (o->ended)
                return say("syncthreads at line %u: thread %u has ended", f->line, o->id.thread);
            if (o->waiting && (o->what != SYNCTHREADS || o->line != f->line)) {
                if (o->what == SYNCTHREADS)
                    return say("syncthreads at line %u: thread %u is in that at line %u", f->line, o->id.thread,
                               o->line);
                return; /* it may still arrive */
            }
            if (!o->waiting)
                return;
        }
        b->time++;
        share(b->fibers.data(), b->fibers.size());
        for (auto &o : b->fibers)
            wake(o.get());
        return;
    }
    if (!(f->mask >> f->id.thread % 32 & 1))
        return say("%s at line %u: lane %u is not in its own mask %08x", names[f->what], f->line, f->id.thread % 32,
                   f->mask);
    for (unsigned l = 0; l < 32; l++) {
        if (!(f->mask >> l & 1))
            continue;
        const fiber *o = first + l < b->fibers.size() ? b->fibers[first + l].get() : nullptr;
        if (!o || o->ended)
            return say("%s at line %u: lane %u of mask %08x has ended", names[f->what], f->line, l, f->mask);
        if (o->waiting && o->what != SYNCTHREADS && (o->mask & f->mask) &&
            (o->what != f->what || o->line != f->line || o->mask != f->mask))
            return say("%s at line %u, mask %08x: lane %u is in %s at line %u, mask %08x", names[f->what], f->line,
                       f->mask, l, names[o->what], o->line, o->mask);
        if (!o->waiting || o->what != f->what || o->line != f->line || o->mask != f->mask)
            return;
    }
    complete_warp(b, warp, f);
}

/* No fiber can run: report which ones wait for which. */
void deadlock(const std::vector<std::unique_ptr<block>> &blocks)
{
    for (auto &b : blocks)
        for (auto &f : b->fibers)
            if (f->waiting && f->what != SYNCTHREADS)
                for (unsigned l = 0; l < 32; l++) {
                    const fiber *o = b->fibers[f->id.thread / 32 * 32 + l].get();
                    if (f->mask >> l & 1 && (o->ended || o->what != f->what || o->line != f->line))
                        return say("%s at line %u: lane %u of mask %08x never arrives (block %u thread %u waits)",
                                   names[f->what], f->line, l, f->mask, b->fibers[0]->id.block_x, f->id.thread);
                }
    say("deadlock");
}

std::unique_ptr<block> begin_block(unsigned x, unsigned y, unsigned grid_x, unsigned threads, size_t bytes)
{
    std::unique_ptr<block> b(new block);
    b->warp_time.assign((threads + 31) / 32, 0);
    b->alive = threads;
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
    for (unsigned t = 0; t < threads; t++) {
        b->fibers.emplace_back(new fiber);
        fiber *f = b->fibers.back().get();
        f->id = thread_id{t, threads, x, y, grid_x};
        f->in = b.get();
        f->stack = stack_take();
        make_ready(f);
    }
    return b;
}

void end_block(block *b)
{
    for (auto &f : b->fibers)
        w.stacks.push_back(f->stack);
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
    f->what = what;
    f->mask = mask;
    f->value = value;
    f->arg = arg;
    f->line = line;
    f->waiting = true;
    make_unready(f);
    arrived(f);
    leave(f);
    return f->result;
}

void yield()
{
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
    const unsigned warp = f->id.thread / 32;
    if ((uintptr_t)p < (uintptr_t)b->shared || at + bytes > b->bytes)
        fail("line %u: outside shared memory", line);
    if (w.counting)
        w.banks.use(f->banks, b->number, f->id.thread, at, bytes, line);
    for (size_t i = at; i < at + bytes; i++) {
        byte_state &s = b->state[i];
        if (s.block != b->number) {
            s = byte_state();
            s.block = b->number;
        }
        const bool both = atomic && s.atomic;
        if (!both && !ordered(s.write, f))
            fail("race in shared memory: thread %u wrote byte %zu at line %u, now %s at line %u", s.write.thread, i,
                 s.write.line, write ? "written" : "read", line);
        if (write && !both && !ordered(s.read, f))
            fail("race in shared memory: thread %u read byte %zu at line %u, now written at line %u", s.read.thread, i,
                 s.read.line, line);
        if (!write && s.write.thread == NOBODY)
            fail("line %u: reads byte %zu of shared memory, which was not written", line, i);
        use u;
        u.thread = f->id.thread;
        u.warp = warp;
        u.line = line;
        u.block_time = b->time;
        u.warp_time = b->warp_time[warp];
        if (write) {
            s.write = u;
            s.read = use();
            s.atomic = atomic;
        } else {
            if (!ordered(s.read, f)) { /* two unordered reads: a later write must be ordered after both */
                u.thread = MANY;
                if (s.read.warp != warp)
                    u.warp = MANY;
            }
            s.read = u;
        }
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
    const std::string race = w.device.use(f->device, position_of(f), p, bytes, how, line);
    if (!race.empty())
        fail("%s", race.c_str());
}

void copy_later(void *to, const void *bytes, size_t count, unsigned line)
{
    const uint8_t *const from = (const uint8_t *)bytes;
    touch_shared(to, count, true, false, line);
    for (size_t i = 0; i < count; i++)
        ((uint8_t *)to)[i] = (uint8_t)next_random();
    w.now->copies.push_back({(uint8_t *)to, {from, from + count}, line});
}

void copy_now()
{
    for (const late_copy &c : w.now->copies) {
        touch_shared(c.to, c.bytes.size(), true, false, c.line);
        memcpy(c.to, c.bytes.data(), c.bytes.size());
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
    w.kernel = &kernel;
    w.device.begin();
    while (!w.failed) {
        while (blocks.size() < w.resident && begun < order.size()) {
            const unsigned i = order[begun++];
            blocks.push_back(begin_block(i % grid_x, i / grid_x, grid_x, threads, shared_bytes));
        }
        if (blocks.empty())
            break;
        if (w.ready.empty()) {
            deadlock(blocks);
            break;
        }
        if (++w.idle > TOO_LONG) {
            say("no thread makes progress");
            break;
        }
        fiber *f = w.ready[next_random() % w.ready.size()];
        run(f);
        if (!f->ended || w.failed)
            continue;
        make_unready(f);
        w.idle = 0;
        block *b = f->in;
        for (auto &o : b->fibers) /* does a fiber wait for this one? */
            if (o->waiting && (o->what == SYNCTHREADS ||
                               (o->id.thread / 32 == f->id.thread / 32 && o->mask >> f->id.thread % 32 & 1)))
                say("%s at line %u of thread %u: thread %u has ended", names[o->what], o->line, o->id.thread,
                    f->id.thread);
        if (--b->alive == 0) {
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
