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

static const int fatal_signals[] = {SIGINT,    SIGTERM, SIGHUP,    SIGPIPE, SIGQUIT, SIGUSR1,
                                    SIGUSR2,   SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGIO,
#ifdef SIGPWR
                                    SIGPWR,
#endif
#ifdef SIGSTKFLT
                                    SIGSTKFLT,
#endif
                                    SIGABRT,   SIGTRAP, SIGSYS};
enum { FATAL_SIGNALS = sizeof fatal_signals / sizeof *fatal_signals };

static void on_signal(int sig)
{
    for (int i = 0; i < OUTPUTS; i++)
        if (unfinished[i])
            pici_outfile_unlink(unfinished[i]);
    outfolder_unlink();
    signal(sig, SIG_DFL);
    raise(sig); /* delivered when the handler returns */
}

/* If address space is limited, grows the stack now to the size that the verbs need. Later, a lack of memory would raise
 * a signal. */
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
    /* Open /dev/null on each closed standard descriptor, in the opposite mode, so that using it still fails. */
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

/* Replaces an entry of the list of unfinished outputs. Outputs in a folder are removed with the folder. */
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

static int open_stdout(struct output *output, const struct input *input)
{
    struct stat file_info;
    output->name = "standard output";
    output->is_stdout = true;
    if (fstat(STDOUT_FILENO, &file_info) < 0)
        return tool_bad(output->name, "%s", strerror(errno));
    if (isatty(STDOUT_FILENO))
        return refuse_terminal(output->name);
    if (input_is_file(input, &file_info))
        return tool_usage(output->name, "is the input file");
    if (S_ISFIFO(file_info.st_mode))
        input_widen_pipe(STDOUT_FILENO);
    /* A copy: output_commit closes it to see late errors, and another output may follow. */
    output->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    return output->fd < 0 ? tool_bad(output->name, "%s", strerror(errno)) : TOOL_OK;
}

/* The files and folders that this run has committed, except those in a folder. */
static struct made {
    dev_t device;
    ino_t inode;
} * made;
static size_t made_count, made_room;

bool output_is_made(const char *path)
{
    struct stat file_info;
    if (!made_count || stat(path, &file_info) < 0)
        return false;
    for (size_t i = 0; i < made_count; i++)
        if (made[i].inode == file_info.st_ino && made[i].device == file_info.st_dev)
            return true;
    return false;
}

/* Makes room for all open outputs. */
static bool room_for_made(void)
{
    if (made_room - made_count >= OUTPUTS)
        return true;
    const size_t capacity = 2 * made_room + OUTPUTS;
    struct made *bigger = realloc(made, capacity * sizeof *made);
    if (!bigger)
        return false;
    made = bigger;
    made_room = capacity;
    return true;
}

int output_add_made(const char *path)
{
    struct stat file_info;
    if (!room_for_made())
        return tool_nomem(path, "the list of outputs");
    if (stat(path, &file_info) == 0)
        made[made_count++] = (struct made){file_info.st_dev, file_info.st_ino};
    return TOOL_OK;
}

int output_open(struct output *output, const char *path, const struct input *input, bool force)
{
    struct pici_perms perms = {0};
    *output = (struct output){.name = path, .fd = -1};
    if (input)
        TRY(output_perms(&perms, path, input->fd));
    const int status = output_open_as(output, path, input, &perms, force);
    pici_perms_free(&perms);
    return status;
}

int output_perms(struct pici_perms *perms, const char *path, int fd)
{
    return pici_perms_add(perms, fd) ? tool_nomem(path, "its permissions") : TOOL_OK;
}

int output_open_as(struct output *output, const char *path, const struct input *input, const struct pici_perms *perms,
                   bool force)
{
    *output = (struct output){.name = path, .fd = -1};
    if (strcmp(path, "-") == 0)
        return open_stdout(output, input);
    if (input_is(input, path))
        return tool_usage(path, "is the input file");
    if (output_is_made(path))
        return tool_usage(path, "is another output of this run");
    if (!outfolder_is_open() && !room_for_made())
        return tool_nomem(path, "the list of outputs");
    struct stat file_info;
    if (stat(path, &file_info) == 0 && S_ISFIFO(file_info.st_mode)) {
        /* waits for a reader; a signal may interrupt it */
        output->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return output->fd < 0 ? tool_bad(path, "%s", strerror(errno)) : TOOL_OK;
    }
    sigset_t old;
    hold_signals(&old);
    enum pici_status status = pici_outfile_open_as(&output->file, path, force, perms);
    int error = errno;
    if (status == PICI_OK)
        replace_unfinished(NULL, output->file);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (status == PICI_E_IO && error == EEXIST) {
        if (input_took_stdin() || !term_can_ask())
            return tool_usage(path, "already exists; not overwritten: --force overwrites it");
        if (!term_ask(path, "already exists; overwrite it?"))
            return tool_usage(path, "already exists; not overwritten");
        return output_open_as(output, path, input, perms, true);
    }
    if (status != PICI_OK)
        return tool_bad(path, "%s", status == PICI_E_IO ? strerror(error) : pici_strerror(status));
    output->fd = pici_outfile_fd(output->file);
    output->lasting =
        !pici_outfile_is_stream(output->file) && fstat(output->fd, &file_info) == 0 && S_ISREG(file_info.st_mode);
    if (output->lasting && perms && perms->files) /* the replaced file's permissions may be wider */
        (void)pici_perms_set(perms, output->fd);
    output->device = output->lasting ? file_info.st_dev : 0;
    output->inode = output->lasting ? file_info.st_ino : 0;
    if (isatty(output->fd)) {
        output_discard(output);
        return refuse_terminal(path);
    }
    return TOOL_OK;
}

void output_sparse(struct output *output)
{
    output->block = output->lasting ? sparse_block(output->fd) : 0;
}

int output_claim(struct output *output, const char *from, uint64_t claimed)
{
    output->claimed = claimed;
    if (!output->block)
        return claimed > limit_now(&output->limit) ? limit_refused(&output->limit, from, claimed) : TOOL_OK;
    /* Make the file that long, as a hole, to see now whether the file system allows it. */
    int error = sparse_resize(output->fd, claimed);
    if (!error)
        error = sparse_resize(output->fd, 0);
    return error ? tool_bad(output->name, "a file of %" PRIu64 " bytes: %s", claimed, strerror(error)) : TOOL_OK;
}

/* Writes bytes outside of holes. Returns 0 or errno. */
static int store(struct output *output, const uint8_t *bytes, size_t size)
{
    if (size > limit_now(&output->limit) - output->stored) {
        output->over_limit = true;
        return EFBIG;
    }
    while (size) {
        const size_t step = size < IO_MOST ? size : IO_MOST;
        ssize_t written =
            output->block ? pwrite(output->fd, bytes, step, (off_t)output->position) : write(output->fd, bytes, step);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        bytes += written;
        size -= (size_t)written;
        output->position += (uint64_t)written;
        output->stored += (uint64_t)written;
    }
    return 0;
}

int output_put(void *context, const void *data, size_t size)
{
    struct output *output = context;
    const uint8_t *bytes = data;
    if (jobs_stopped())
        return output->error = ECANCELED;
    if (output->hashed)
        pici_xxh64_update(&output->hash, bytes, size);
    while (size) {
        bool hole = false;
        const size_t step = output->block ? sparse_run(bytes, size, output->position, output->block, &hole) : size;
        if (hole)
            output->position += step;
        else if ((output->error = store(output, bytes, step)) != 0)
            return output->error;
        bytes += step;
        size -= step;
    }
    return 0;
}

int output_failed(const struct output *output)
{
    if (output->error == ECANCELED)
        return TOOL_BAD; /* another job has printed the reason */
    if (output->over_limit)
        return limit_reached(&output->limit, output->name, output->claimed);
    return tool_bad_at(output->name, output->position, "%s", strerror(output->error));
}

void output_times(struct output *output, const struct input *input)
{
    struct stat file_info;
    output->timed =
        output->lasting && input->fd >= 0 && fstat(input->fd, &file_info) == 0 && S_ISREG(file_info.st_mode);
    if (output->timed) {
        output->times[0] = file_info.st_atim;
        output->times[1] = file_info.st_mtim;
    }
}

void output_hash(struct output *output)
{
    output->hashed = true;
    pici_xxh64_init(&output->hash, 0);
}

int output_writer_failed(const struct output *output, const struct pici_writer *writer, enum pici_status status)
{
    if (status == PICI_E_IO && output->error)
        return output_failed(output);
    tool_bad(output->name, "%s", writer ? pici_writer_error(writer) : pici_strerror(status));
    return status == PICI_E_UNSUPPORTED ? TOOL_USAGE : TOOL_BAD;
}

int output_write(struct output *output, const void *data, size_t size)
{
    return output_put(output, data, size) ? output_failed(output) : TOOL_OK;
}

int output_commit(struct output *output)
{
    int error = 0, unsynced = 0;
    if (output->block && (output->error = sparse_resize(output->fd, output->position)) != 0) /* a hole at the end */
        return output_failed(output);
    if (output->timed)
        (void)futimens(output->fd, output->times);
    if (output->file) {
        sigset_t old;
        hold_signals(&old);
        replace_unfinished(output->file, NULL);
        enum pici_status status = pici_outfile_commit(output->file);
        error = status == PICI_OK ? 0 : errno;
        unsynced = status == PICI_E_SYNC;
        if (status == PICI_OK && output->lasting && !outfolder_is_open())
            made[made_count++] = (struct made){output->device, output->inode};
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        output->file = NULL;
    } else if (close(output->fd) < 0 && errno != EINTR) { /* some file systems report a full disk only here */
        error = errno;
    }
    output->fd = -1;
    if (unsynced)
        return tool_bad(output->name, "written, but not synced to disk: %s", strerror(error));
    if (error == EEXIST)
        return tool_usage(output->name, "was created meanwhile; not overwritten: --force overwrites it");
    return error ? tool_bad(output->name, "%s", strerror(error)) : TOOL_OK;
}

void output_discard(struct output *output)
{
    if (output->file) {
        sigset_t old;
        hold_signals(&old);
        replace_unfinished(output->file, NULL);
        pici_outfile_abort(output->file);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
    } else if (output->fd > STDERR_FILENO) {
        close(output->fd);
    }
    output->file = NULL;
    output->fd = -1;
}
