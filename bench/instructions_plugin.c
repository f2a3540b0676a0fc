/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A plugin for QEMU's user-mode emulators (4.2 to 8.2): counts the instructions that are executed between two
 * addresses, which the program passes any number of times. tools/dev/instructions makes and uses it.
 *   -plugin instructions_plugin.so,begin=ADDRESS,end=ADDRESS[,trace=FILE]
 * At `end` it writes the number to standard output, as a line. trace: writes the instructions too, one a line, as
 * QEMU's disassembler prints them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From QEMU's qemu-plugin.h, which Debian does not package. */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
extern int qemu_plugin_version;
int qemu_plugin_install(qemu_plugin_id_t, const void *info, int argc, char **argv);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned vcpu, void *), int flags, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
char *qemu_plugin_insn_disas(const struct qemu_plugin_insn *);

int qemu_plugin_version = 1;

struct block {
    uint64_t at;
    size_t n;
    char *text; /* null without a trace */
};

static uint64_t begin, end, count;
static int counting;
static FILE *trace;

static void executed(unsigned vcpu, void *p)
{
    const struct block *b = p;
    (void)vcpu;
    if (b->at == end && counting) {
        char line[32];
        const int n = snprintf(line, sizeof line, "%" PRIu64 "\n", count);
        if (write(STDOUT_FILENO, line, (size_t)n) != n)
            abort();
        counting = 0;
        if (trace)
            fflush(trace);
    }
    if (counting) {
        count += b->n;
        if (trace)
            fputs(b->text, trace);
    }
    if (b->at == begin) {
        counting = 1;
        count = 0;
    }
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    struct block *b = malloc(sizeof *b);
    (void)id;
    if (!b)
        abort();
    b->at = qemu_plugin_tb_vaddr(tb);
    b->n = qemu_plugin_tb_n_insns(tb);
    b->text = NULL;
    if (trace) {
        size_t len;
        FILE *out = open_memstream(&b->text, &len);
        if (!out)
            abort();
        for (size_t i = 0; i < b->n; i++) {
            char *text = qemu_plugin_insn_disas(qemu_plugin_tb_get_insn(tb, i));
            fprintf(out, "%s\n", text);
            free(text);
        }
        if (fclose(out))
            abort();
    }
    qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, 0, b);
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "begin=", 6) == 0)
            begin = strtoull(argv[i] + 6, NULL, 16);
        else if (strncmp(argv[i], "end=", 4) == 0)
            end = strtoull(argv[i] + 4, NULL, 16);
        else if (strncmp(argv[i], "trace=", 6) != 0 || !(trace = fopen(argv[i] + 6, "w")))
            return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
