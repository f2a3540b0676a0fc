/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stacks that take turns. On x86-64, a few instructions change the stack; elsewhere, and with the address sanitizer,
 * which must know, those of the C library. */
#ifndef PICI_TESTS_EMU_FIBER_SWITCH_H
#define PICI_TESTS_EMU_FIBER_SWITCH_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

namespace emu {

#if defined(__x86_64__) && defined(__LP64__) && defined(__ELF__) && !defined(EMU_ASAN)
/* Save the registers that a function keeps, and where the stack ends; continue where another stack's were saved. */
extern "C" void pici_emu_switch(void **from, void *to) __attribute__((visibility("hidden")));
asm(".text\n"
    ".globl pici_emu_switch\n"
    ".hidden pici_emu_switch\n"
    ".type pici_emu_switch, @function\n"
    "pici_emu_switch:\n"
    "pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15\n"
    "movq %rsp, (%rdi)\n"
    "movq %rsi, %rsp\n"
    "popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp\n"
    "ret\n"
    ".size pici_emu_switch, . - pici_emu_switch\n");

struct context {
    void *end;
};

inline void switch_to(context &from, const context &to)
{
    pici_emu_switch(&from.end, to.end);
}

/* Call a function, which never returns, on a stack of its own. */
inline void switch_to_new(context &from, uint8_t *stack, size_t bytes, void (*function)())
{
    uintptr_t *const end = (uintptr_t *)(((uintptr_t)stack + bytes) & ~(uintptr_t)15) - 8; /* registers, address, 0 */
    for (unsigned i = 0; i < 8; i++)
        end[i] = i == 6 ? (uintptr_t)function : 0;
    pici_emu_switch(&from.end, end);
}
#else
struct context {
    jmp_buf at;
};

inline void switch_to(context &from, context &to)
{
    if (_setjmp(from.at) == 0)
        _longjmp(to.at, 1);
}

inline void switch_to_new(context &from, uint8_t *stack, size_t bytes, void (*function)())
{
    if (_setjmp(from.at))
        return;
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = stack;
    start.uc_stack.ss_size = bytes;
    start.uc_link = nullptr;
    makecontext(&start, function, 0);
    setcontext(&start);
}
#endif

} // namespace emu

#endif
