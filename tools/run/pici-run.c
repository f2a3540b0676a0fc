/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici-run: starts the ranks of a program on this host. The environment tells the ranks how to find each other. Needs
 * libc alone. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "pici/pici.h"

/* Ports are below the ephemeral range, so that no outgoing connection takes a port meanwhile. */
enum {
    MAX_RANKS = 4096,
    TOKEN_BYTES = 16,
    FIRST_PORT = 15000,
    PORTS = 17000,
    PORT_TRIES = 200,
    TERM_MS = 1000, /* from the first failure to SIGTERM; ranks that notice it report it meanwhile */
    KILL_MS = 5000  /* from SIGTERM to SIGKILL */
};

enum { EXIT_USAGE = 2, EXIT_NOT_STARTED = 126, EXIT_NOT_FOUND = 127, EXIT_SIGNAL = 128 };

static const char usage[] =
    "usage: pici-run -n RANKS [--] COMMAND [ARGUMENT...]\n"
    "Starts RANKS processes of COMMAND on this host, with PICI_RANK, PICI_RANKS, PICI_RENDEZVOUS and PICI_TOKEN in\n"
    "the environment of each, for pici_comm_rendezvous(&comm, NULL, 0, 0, NULL).\n"
    "  -n, --ranks N    number of processes\n"
    "  -v, --verbose    print each rank's exit status to standard error\n"
    "  --version, --help\n"
    "Rank 0 gets the standard input. If a rank fails, pici-run ends the others after a second. It exits with the\n"
    "status of the first rank that failed, or 128 plus the number of the signal that ended it.\n";

static void complain(const char *what, const char *reason)
{
    fprintf(stderr, "pici-run: %s: %s\n", what, reason);
}

static long long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- the environment of the ranks */

static int random_bytes(uint8_t *bytes, size_t size)
{
    const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    const int got = fd >= 0 && read(fd, bytes, size) == (ssize_t)size;
    if (fd >= 0)
        close(fd);
    return got;
}

/* Whether a port of loopback is free. */
static int is_free(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int unused = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0;
    if (fd >= 0)
        close(fd);
    return unused;
}

/* Returns 0 if it finds no port or token. */
static int set_environment(int ranks)
{
    char text[2 * TOKEN_BYTES + 1];
    uint8_t token[TOKEN_BYTES];
    uint16_t start;
    int port = 0;
    if (!random_bytes(token, sizeof token) || !random_bytes((uint8_t *)&start, sizeof start)) {
        complain("/dev/urandom", strerror(errno));
        return 0;
    }
    for (int i = 0; i < PORT_TRIES && !port; i++)
        if (is_free(FIRST_PORT + (start + i) % PORTS))
            port = FIRST_PORT + (start + i) % PORTS;
    if (!port) {
        complain("127.0.0.1", "found no free port");
        return 0;
    }
    for (int i = 0; i < TOKEN_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", token[i]);
    int failed = setenv("PICI_TOKEN", text, 1);
    snprintf(text, sizeof text, "127.0.0.1:%d", port);
    failed |= setenv("PICI_RENDEZVOUS", text, 1);
    snprintf(text, sizeof text, "%d", ranks);
    failed |= setenv("PICI_RANKS", text, 1);
    if (failed)
        complain("the environment", strerror(errno));
    return !failed;
}

/* ---- the ranks */

struct job {
    int ranks, running, verbose;
    pid_t *pid;     /* [ranks] 0: not running */
    int status;     /* exit status, from the first rank that failed */
    int failed;     /* a rank has failed */
    long long next; /* when to send `signal` to the running ranks; < 0: never */
    int signal;
    sigset_t signals; /* blocked, except while waiting for them */
};

static _Noreturn void become(int rank, char **command, const sigset_t *mask)
{
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
#ifdef __linux__
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* so that no rank outlives this program if it is killed */
#endif
    if (rank > 0) {
        const int null = open("/dev/null", O_RDONLY);
        if (null >= 0 && null != STDIN_FILENO) {
            (void)dup2(null, STDIN_FILENO);
            close(null);
        }
    }
    if (setenv("PICI_RANK", text, 1) == 0 && sigprocmask(SIG_SETMASK, mask, NULL) == 0)
        execvp(command[0], command);
    const int error = errno;
    if (rank == 0)
        complain(command[0], strerror(error));
    _exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_STARTED);
}

static void tell_all(const struct job *job, int signal)
{
    for (int i = 0; i < job->ranks; i++)
        if (job->pid[i])
            (void)kill(job->pid[i], signal);
}

/* Begins the end of the job: schedules a signal for ranks that do not end by themselves. */
static void wind_up(struct job *job)
{
    job->failed = 1;
    job->signal = SIGTERM;
    job->next = milliseconds() + TERM_MS;
}

static void say_end(const struct job *job, int rank, int status, int first)
{
    const char *rest = first && job->running ? "; the others are ended" : "";
    if (WIFSIGNALED(status))
        fprintf(stderr, "pici-run: rank %d was ended by signal %d (%s)%s\n", rank, WTERMSIG(status),
                strsignal(WTERMSIG(status)), rest);
    else
        fprintf(stderr, "pici-run: rank %d exited with status %d%s\n", rank, WEXITSTATUS(status), rest);
}

/* Collects the ranks that have ended. */
static void reap(struct job *job)
{
    int status;
    pid_t pid;
    while (job->running && (pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int rank = 0;
        while (rank < job->ranks && job->pid[rank] != pid)
            rank++;
        if (rank == job->ranks)
            continue;
        const int code = WIFSIGNALED(status) ? EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status),
                  first = code && !job->failed;
        job->pid[rank] = 0;
        job->running--;
        if (first || job->verbose)
            say_end(job, rank, status, first);
        if (first) {
            job->status = code;
            wind_up(job);
        }
    }
}

/* Sleeps until a rank ends, a signal arrives, or the next signal is due. Passes signals on, except for signals of
 * terminal keys, which the ranks receive too. */
static void sleep_and_pass_on(struct job *job)
{
    siginfo_t info;
    const long long until = job->next - milliseconds(), remaining = until > 0 ? until : 0;
    const struct timespec timeout = {(time_t)(remaining / 1000), (long)(remaining % 1000) * 1000000};
    const int signal = job->next < 0 ? sigwaitinfo(&job->signals, &info) : sigtimedwait(&job->signals, &info, &timeout);
    if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL)
        tell_all(job, signal);
    if (job->next >= 0 && milliseconds() >= job->next) {
        tell_all(job, job->signal);
        job->next = job->signal == SIGTERM ? milliseconds() + KILL_MS : -1;
        job->signal = SIGKILL;
    }
}

static int run(struct job *job, char **command)
{
    static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t before;
    sigemptyset(&job->signals);
    sigaddset(&job->signals, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
        sigaddset(&job->signals, passed_on[i]);
    (void)signal(SIGCHLD, SIG_DFL); /* if it were ignored, waitpid would not see ranks that end */
    sigprocmask(SIG_BLOCK, &job->signals, &before);
    job->next = -1;
    for (int i = 0; i < job->ranks && !job->failed; i++) {
        const pid_t pid = fork();
        if (pid == 0)
            become(i, command, &before);
        if (pid > 0) {
            job->pid[i] = pid;
            job->running++;
            continue;
        }
        complain("fork", strerror(errno));
        job->status = 1;
        wind_up(job);
    }
    for (reap(job); job->running; reap(job))
        sleep_and_pass_on(job);
    return job->status;
}

static _Noreturn void bad_usage(void)
{
    fputs(usage, stderr);
    exit(EXIT_USAGE);
}

static int parse_ranks(const char *text)
{
    char *end;
    const long number = strtol(text, &end, 10);
    if (end == text || *end || number < 1 || number > MAX_RANKS)
        bad_usage();
    return (int)number;
}

static int finish_output(void)
{
    return fflush(stdout) || ferror(stdout);
}

int main(int argc, char **argv)
{
    enum { VERSION = 256 };
    static const struct option options[] = {{"ranks", 1, NULL, 'n'},
                                            {"verbose", 0, NULL, 'v'},
                                            {"version", 0, NULL, VERSION},
                                            {"help", 0, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct job job = {0};
    int letter;
    while ((letter = getopt_long(argc, argv, "+n:vh", options, NULL)) != -1)
        switch (letter) {
        case 'n': job.ranks = parse_ranks(optarg); break;
        case 'v': job.verbose = 1; break;
        case 'h': fputs(usage, stdout); return finish_output();
        case VERSION: printf("pici-run %s\n", PICI_VERSION); return finish_output();
        default: bad_usage();
        }
    if (!job.ranks || optind == argc)
        bad_usage();
    job.pid = calloc((size_t)job.ranks, sizeof *job.pid);
    if (!job.pid) {
        complain("ranks", strerror(ENOMEM));
        return 1;
    }
    const int status = set_environment(job.ranks) ? run(&job, argv + optind) : 1;
    free(job.pid);
    return status;
}
