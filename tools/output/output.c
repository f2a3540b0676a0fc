/* SPDX-License-Identifier: BSD-3-Clause */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "output/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/outfile.h"
#include "jobs.h"
#include "output/outfolder.h"
#include "output/sparse.h"
#include "term.h"
#include "tool.h"

enum { IO_MOST = 1 << 30, OUTPUTS = 4 };

/* The outputs whose temporary files a signal removes. A verb has at most two at a time. */
static struct pici_outfile *volatile unfinished[OUTPUTS];

static const int fatal_signals[] = {SIGINT,  SIGTERM, SIGHUP,    SIGPIPE, SIGQUIT, SIGUSR1,
                                    SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGIO};
enum { FATAL_SIGNALS = sizeof fatal_signals / sizeof *fatal_signals };

static void on_signal(int sig)
{
    for (int i = 0; i < OUTPUTS; i++)
        if (unfinished[i])
            pici_outfile_unlink(unfinished[i]);
    outfolder_unlink();
    signal(sig, SIG_DFL);
    raise(sig); /* taken when the handler returns */
}

/* Where address space is limited, let the stack grow now to what the verbs need. Later it would be a signal if there
 * were none left. */
static int reserve_stack(void)
{
    enum { STACK = 512 << 10, PAGE = 4096 };
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY)
        return TOOL_OK;
    void *room = mmap(NULL, 2 * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return tool_nomem(NULL, "the stack");
    munmap(room, 2 * STACK);
    volatile uint8_t stack[STACK];
    for (size_t at = STACK; at > 0; at -= PAGE) /* downwards, as it grows */
        stack[at - 1] = 0;
    (void)stack[0];
    return TOOL_OK;
}

int output_start(void)
{
    /* Open /dev/null on each closed standard descriptor, in the mode in which using it still fails. */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    for (int i = 0; i < FATAL_SIGNALS; i++) {
        struct sigaction old, act = {.sa_handler = on_signal};
        sigfillset(&act.sa_mask);
        if (sigaction(fatal_signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(fatal_signals[i], &act, NULL);
    }
    signal(SIGXFSZ, SIG_IGN);
    return reserve_stack();
}

static void hold_signals(sigset_t *old)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, old);
}

/* Replaces an entry of the list of unfinished outputs. Those in a folder are removed with it. */
static void replace_unfinished(const struct pici_outfile *old, struct pici_outfile *new)
{
    if (outfolder_is_open())
        return;
    for (int i = 0; i < OUTPUTS; i++)
        if (unfinished[i] == old) {
            unfinished[i] = new;
            return;
        }
}

static int refuse_terminal(const char *name)
{
    return tool_usage(name, "is a terminal, and the output is binary: use -o FILE or a pipe");
}

static int open_stdout(struct output *out, const struct input *in)
{
    struct stat st;
    out->name = "standard output";
    out->is_stdout = true;
    if (fstat(STDOUT_FILENO, &st) < 0)
        return tool_bad(out->name, "%s", strerror(errno));
    if (isatty(STDOUT_FILENO))
        return refuse_terminal(out->name);
    if (input_is_file(in, &st))
        return tool_usage(out->name, "is the input file");
    if (S_ISFIFO(st.st_mode))
        input_widen_pipe(STDOUT_FILENO);
    /* A copy, since output_commit closes it to learn of late errors, and another output may follow. */
    out->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    return out->fd < 0 ? tool_bad(out->name, "%s", strerror(errno)) : TOOL_OK;
}

/* The regular files that this run has committed, but for those in a folder. */
static struct made {
    dev_t dev;
    ino_t ino;
} * made;
static size_t made_count, made_room;

static bool is_made(const char *path)
{
    struct stat st;
    if (!made_count || stat(path, &st) < 0)
        return false;
    for (size_t i = 0; i < made_count; i++)
        if (made[i].ino == st.st_ino && made[i].dev == st.st_dev)
            return true;
    return false;
}

/* Makes room for all outputs that may be open. */
static bool room_for_made(void)
{
    if (outfolder_is_open() || made_room - made_count >= OUTPUTS)
        return true;
    const size_t room = 2 * made_room + OUTPUTS;
    struct made *bigger = realloc(made, room * sizeof *made);
    if (!bigger)
        return false;
    made = bigger;
    made_room = room;
    return true;
}

int output_open(struct output *out, const char *path, const struct input *in, bool force)
{
    struct pici_perms perms = {0};
    *out = (struct output){.name = path, .fd = -1};
    if (in)
        TRY(output_perms(&perms, path, in->fd));
    const int status = output_open_as(out, path, in, &perms, force);
    pici_perms_free(&perms);
    return status;
}

int output_perms(struct pici_perms *perms, const char *path, int fd)
{
    return pici_perms_add(perms, fd) ? tool_nomem(path, "its permissions") : TOOL_OK;
}

int output_open_as(struct output *out, const char *path, const struct input *in, const struct pici_perms *perms,
                   bool force)
{
    *out = (struct output){.name = path, .fd = -1};
    if (strcmp(path, "-") == 0)
        return open_stdout(out, in);
    if (input_is(in, path))
        return tool_usage(path, "is the input file");
    if (is_made(path))
        return tool_usage(path, "is another output of this run");
    if (!room_for_made())
        return tool_nomem(path, "the list of outputs");
    struct stat st;
    if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode)) {
        /* waits for a reader, and a signal may end that */
        out->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return out->fd < 0 ? tool_bad(path, "%s", strerror(errno)) : TOOL_OK;
    }
    sigset_t old;
    hold_signals(&old);
    enum pici_status s = pici_outfile_open_as(&out->file, path, force, perms);
    int err = errno;
    if (s == PICI_OK)
        replace_unfinished(NULL, out->file);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (s == PICI_E_IO && err == EEXIST) {
        if (input_took_stdin() || !term_can_ask())
            return tool_usage(path, "exists; --force overwrites it");
        if (!term_ask(path, "exists; overwrite it?"))
            return tool_usage(path, "exists and is kept");
        return output_open_as(out, path, in, perms, true);
    }
    if (s != PICI_OK)
        return tool_bad(path, "%s", s == PICI_E_IO ? strerror(err) : pici_strerror(s));
    out->fd = pici_outfile_fd(out->file);
    out->lasting = !pici_outfile_is_stream(out->file) && fstat(out->fd, &st) == 0 && S_ISREG(st.st_mode);
    if (out->lasting && perms && perms->files) /* those of the file that it replaces may permit more */
        (void)pici_perms_set(perms, out->fd);
    out->dev = out->lasting ? st.st_dev : 0;
    out->ino = out->lasting ? st.st_ino : 0;
    if (isatty(out->fd)) {
        output_discard(out);
        return refuse_terminal(path);
    }
    return TOOL_OK;
}

void output_sparse(struct output *out)
{
    out->block = out->lasting ? sparse_block(out->fd) : 0;
}

int output_claim(struct output *out, const char *from, uint64_t claimed)
{
    out->claimed = claimed;
    if (!out->block)
        return claimed > limit_now(&out->limit) ? limit_refused(&out->limit, from, claimed) : TOOL_OK;
    /* Making the file that long, all hole, shows at once whether the file system allows it. */
    int err = sparse_resize(out->fd, claimed);
    if (!err)
        err = sparse_resize(out->fd, 0);
    return err ? tool_bad(out->name, "a file of %" PRIu64 " bytes: %s", claimed, strerror(err)) : TOOL_OK;
}

/* Writes bytes that are not a hole. Returns 0 or errno. */
static int store(struct output *out, const uint8_t *p, size_t len)
{
    if (len > limit_now(&out->limit) - out->stored) {
        out->over = true;
        return EFBIG;
    }
    while (len) {
        const size_t n = len < IO_MOST ? len : IO_MOST;
        ssize_t k = out->block ? pwrite(out->fd, p, n, (off_t)out->at) : write(out->fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return errno;
        p += k;
        len -= (size_t)k;
        out->at += (uint64_t)k;
        out->stored += (uint64_t)k;
    }
    return 0;
}

int output_put(void *ctx, const void *data, size_t len)
{
    struct output *out = ctx;
    const uint8_t *p = data;
    if (jobs_stopped())
        return out->err = ECANCELED;
    if (out->hashed)
        pici_xxh64_update(&out->hash, p, len);
    while (len) {
        bool hole = false;
        const size_t n = out->block ? sparse_run(p, len, out->at, out->block, &hole) : len;
        if (hole)
            out->at += n;
        else if ((out->err = store(out, p, n)) != 0)
            return out->err;
        p += n;
        len -= n;
    }
    return 0;
}

int output_failed(const struct output *out)
{
    if (out->err == ECANCELED)
        return TOOL_BAD; /* another job has said why */
    if (out->over)
        return limit_reached(&out->limit, out->name, out->claimed);
    return tool_bad_at(out->name, out->at, "%s", strerror(out->err));
}

void output_times(struct output *out, const struct input *in)
{
    struct stat st;
    out->timed = out->lasting && in->fd >= 0 && fstat(in->fd, &st) == 0 && S_ISREG(st.st_mode);
    if (out->timed) {
        out->times[0] = st.st_atim;
        out->times[1] = st.st_mtim;
    }
}

void output_hash(struct output *out)
{
    out->hashed = true;
    pici_xxh64_init(&out->hash, 0);
}

int output_writer_failed(const struct output *out, const struct pici_writer *w, enum pici_status s)
{
    if (s == PICI_E_IO && out->err)
        return output_failed(out);
    tool_bad(out->name, "%s", w ? pici_writer_error(w) : pici_strerror(s));
    return s == PICI_E_UNSUPPORTED ? TOOL_USAGE : TOOL_BAD;
}

int output_write(struct output *out, const void *p, size_t len)
{
    return output_put(out, p, len) ? output_failed(out) : TOOL_OK;
}

int output_commit(struct output *out)
{
    int err = 0, unsynced = 0;
    if (out->block && (out->err = sparse_resize(out->fd, out->at)) != 0) /* a hole at the end */
        return output_failed(out);
    if (out->timed)
        (void)futimens(out->fd, out->times);
    if (out->file) {
        sigset_t old;
        hold_signals(&old);
        replace_unfinished(out->file, NULL);
        enum pici_status s = pici_outfile_commit(out->file);
        err = s == PICI_OK ? 0 : errno;
        unsynced = s == PICI_E_SYNC;
        if (s == PICI_OK && out->lasting && !outfolder_is_open())
            made[made_count++] = (struct made){out->dev, out->ino};
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        out->file = NULL;
    } else if (close(out->fd) < 0 && errno != EINTR) { /* some file systems report a full disk only here */
        err = errno;
    }
    out->fd = -1;
    if (unsynced)
        return tool_bad(out->name, "written, but perhaps not on the disk: %s", strerror(err));
    if (err == EEXIST)
        return tool_usage(out->name, "appeared meanwhile; --force overwrites it");
    return err ? tool_bad(out->name, "%s", strerror(err)) : TOOL_OK;
}

void output_discard(struct output *out)
{
    if (out->file) {
        sigset_t old;
        hold_signals(&old);
        replace_unfinished(out->file, NULL);
        pici_outfile_abort(out->file);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    } else if (out->fd > STDERR_FILENO) {
        close(out->fd);
    }
    out->file = NULL;
    out->fd = -1;
}
