/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The only process of the emulated machine of tests/avx512/run. Runs the programs named on the kernel's command line
 * (after --), which test the kernels for AVX-512 alone, and with few inputs if FEW=1 stands before the --. It then
 * switches the machine off. The console is the serial port; its last line is "failures N". */
#include <stdio.h>
#include <stdlib.h>
#include <sys/io.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

static int run(char *program)
{
    char *argv[] = {program, NULL}, *envp[] = {"PICI_TEST_LAST=1", getenv("FEW") ? "PICI_TEST_FEW=1" : NULL, NULL};
    int status;
    const pid_t child = fork();
    if (child == 0) {
        execve(program, argv, envp);
        perror(program);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    int failures = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("avx512f %d, avx512bw %d, avx512vl %d, avx512vbmi2 %d\n", !!__builtin_cpu_supports("avx512f"),
           !!__builtin_cpu_supports("avx512bw"), !!__builtin_cpu_supports("avx512vl"),
           !!__builtin_cpu_supports("avx512vbmi2"));
    for (int i = 1; i < argc; i++) {
        printf("run %s\n", argv[i]);
        const int status = run(argv[i]);
        printf("exit %d %s\n", status, argv[i]);
        failures += status != 0;
    }
    printf("failures %d\n", failures);
    sleep(1); /* for the serial port */

    /* Bochs ends when it reads this word from its own port. */
    if (iopl(3) == 0)
        for (const char *c = "Shutdown"; *c; c++)
            outb((unsigned char)*c, 0x8900);
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}
