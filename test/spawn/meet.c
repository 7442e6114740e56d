/* SPDX-License-Identifier: MIT */
/*
 * Jobs that meet: meet WHAT FILE [NUMBER]. The side that opens a port writes its name to
 * FILE. Errors are returned, and each is printed as "class NAME". A side that ends well says
 * "WHAT: ok".
 *
 *      accept, connect     all ranks of both jobs exchange messages, NUMBER times, and disconnect
 *      keep-accept, keep-connect   the same, once; both call MPI_Finalize while they are connected
 *      wrong               connects with the name of FILE, in which one digit of the key is changed
 *      close               opens a port, closes it when FILE.go exists
 *      visit               connects, and says what class of error it gets
 *      die-accept, die-connect     exits while it is connected
 *      live-accept, live-connect   the other side of these: its receives fail, and it goes on
 *      spawn               spawns NUMBER ranks of this program ("child"), each of which spawns one
 *                          more ("grandchild"); all exchange messages with all
 *      join                the two ranks of the job join by a socket, NUMBER times
 */
#include <mpi.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LONG = 300000, GIVE_UP_S = 100, MOST = 64 };

static int rank, size;
static const char *what;

static void die(const char *why)
{
    fprintf(stderr, "%s, rank %d: FAILED: %s\n", what, rank, why);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void ok(int error, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];
    int len;

    if (error == MPI_SUCCESS)
        return;
    MPI_Error_string(error, text, &len);
    fprintf(stderr, "%s\n", text);
    die(call);
}

static const char *class_of(int error)
{
    int class;

    MPI_Error_class(error, &class);
    return class == MPI_SUCCESS ? "SUCCESS" : class == MPI_ERR_PORT ? "PORT" : "another one";
}

/* -- the name of the port ---------------------------------------------------------------------- */

static void put_name(const char *file, const char *name)
{
    char tmp[512];
    FILE *f;

    snprintf(tmp, sizeof(tmp), "%s.new", file);
    f = fopen(tmp, "w");
    if (!f || fputs(name, f) < 0 || fclose(f) || rename(tmp, file))
        die("cannot write the name");
}

static void wait_for(const char *file)
{
    time_t start = time(NULL);

    while (access(file, R_OK)) {
        if (time(NULL) - start > GIVE_UP_S)
            die("no file");
        usleep(10000);
    }
}

static void get_name(const char *file, char name[MPI_MAX_PORT_NAME])
{
    FILE *f;

    wait_for(file);
    f = fopen(file, "r");
    memset(name, 0, MPI_MAX_PORT_NAME);
    if (!f || fread(name, 1, MPI_MAX_PORT_NAME - 1, f) == 0)
        die("cannot read the name");
    fclose(f);
}

/* -- messages ---------------------------------------------------------------------------------- */

static void fill(unsigned char *b, int n, int from, int to)
{
    for (int i = 0; i < n; i++)
        b[i] = (unsigned char)(i * 7 + from * 31 + to * 17 + n);
}

/* Every process sends every remote one a message of n bytes, and compares what it gets. */
static void exchange(MPI_Comm inter, int n)
{
    unsigned char *out, *in, *want = malloc((size_t)n);
    MPI_Request *req;
    MPI_Status *status;
    int remote, me;

    MPI_Comm_rank(inter, &me);
    MPI_Comm_remote_size(inter, &remote);
    out = malloc((size_t)n * (size_t)remote);
    in = malloc((size_t)n * (size_t)remote);
    req = malloc(2 * (size_t)remote * sizeof(*req));
    status = malloc(2 * (size_t)remote * sizeof(*status));
    if (!want || !out || !in || !req || !status)
        die("memory");
    for (int i = 0; i < remote; i++) {
        ok(MPI_Irecv(in + (size_t)i * (size_t)n, n, MPI_BYTE, i, 5, inter, &req[2 * i]), "irecv");
        fill(out + (size_t)i * (size_t)n, n, me, i);
        ok(MPI_Isend(out + (size_t)i * (size_t)n, n, MPI_BYTE, i, 5, inter, &req[2 * i + 1]),
           "isend");
    }
    ok(MPI_Waitall(2 * remote, req, status), "waitall");
    for (int i = 0; i < remote; i++) {
        fill(want, n, i, me);
        if (memcmp(want, in + (size_t)i * (size_t)n, (size_t)n))
            die("wrong bytes");
    }
    free(want);
    free(out);
    free(in);
    free(req);
    free(status);
}

static void talk(MPI_Comm inter)
{
    int sum = 0, one = 1, remote;

    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    MPI_Comm_remote_size(inter, &remote);
    exchange(inter, 8);
    exchange(inter, LONG);
    ok(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter), "allreduce");
    if (sum != remote)
        die("wrong sum");
}

/* -- meeting ----------------------------------------------------------------------------------- */

static void accept_or_connect(const char *file, int rounds, bool accepts, bool keep)
{
    char name[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;

    if (rank == 0 && accepts) {
        ok(MPI_Open_port(MPI_INFO_NULL, name), "open_port");
        put_name(file, name);
    } else if (rank == 0) {
        get_name(file, name);
    }
    for (int i = 0; i < rounds; i++) {
        if (accepts)
            ok(MPI_Comm_accept(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter), "accept");
        else
            ok(MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter), "connect");
        talk(inter);
        if (!keep)
            ok(MPI_Comm_disconnect(&inter), "disconnect");
    }
    if (rank == 0 && accepts)
        ok(MPI_Close_port(name), "close_port");
}

/* A process that does not know the key: another digit in the middle of it. */
static void wrong(const char *file)
{
    char name[MPI_MAX_PORT_NAME], *key;
    MPI_Comm inter;
    int error;

    get_name(file, name);
    key = strchr(name, '.');
    if (!key)
        die("the name has no key");
    key[8] = key[8] == '0' ? '1' : '0';
    error = MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
    printf("wrong: class %s\n", class_of(error));
}

static void close_port(const char *file)
{
    char name[MPI_MAX_PORT_NAME], go[512];

    snprintf(go, sizeof(go), "%s.go", file);
    ok(MPI_Open_port(MPI_INFO_NULL, name), "open_port");
    put_name(file, name);
    wait_for(go);
    ok(MPI_Close_port(name), "close_port");
}

static void visit(const char *file)
{
    char name[MPI_MAX_PORT_NAME];
    MPI_Comm inter;

    get_name(file, name);
    printf("visit: class %s\n",
           class_of(MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter)));
}

static void end_in_the_middle(const char *file, bool accepts, bool dies)
{
    char name[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    int error, x = 0;

    if (accepts && rank == 0) {
        ok(MPI_Open_port(MPI_INFO_NULL, name), "open_port");
        put_name(file, name);
    } else if (rank == 0) {
        get_name(file, name);
    }
    if (accepts)
        ok(MPI_Comm_accept(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter), "accept");
    else
        ok(MPI_Comm_connect(name, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter), "connect");
    talk(inter);
    if (dies)
        _exit(9);
    error = MPI_Recv(&x, 1, MPI_INT, 0, 77, inter, MPI_STATUS_IGNORE);
    if (error == MPI_SUCCESS)
        die("a message of a process that has ended");
    ok(MPI_Comm_disconnect(&inter), "disconnect");
}

/* -- spawning ---------------------------------------------------------------------------------- */

static void spawn(char *program, const char *child, int n)
{
    char *args[] = { (char *)child, NULL };
    MPI_Comm inter, all;
    int errors[MOST], total;

    ok(MPI_Comm_spawn(program, args, n, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, errors),
       "spawn");
    talk(inter);
    ok(MPI_Intercomm_merge(inter, 0, &all), "merge");
    MPI_Comm_size(all, &total);
    if (total != size + n)
        die("not all are there");
    ok(MPI_Barrier(all), "barrier");
    MPI_Comm_free(&all);
    ok(MPI_Comm_disconnect(&inter), "disconnect");
}

static void be_child(void)
{
    MPI_Comm parent, all;

    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL)
        die("no parent");
    talk(parent);
    ok(MPI_Intercomm_merge(parent, 1, &all), "merge");
    ok(MPI_Barrier(all), "barrier");
    MPI_Comm_free(&all);
    ok(MPI_Comm_disconnect(&parent), "disconnect");
}

/* -- joining ----------------------------------------------------------------------------------- */

/* A connected socket: rank 0 listens, and its port number is sent to rank 1 by MPI. */
static int make_socket(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    int s = socket(AF_INET, SOCK_STREAM, 0), fd = s;

    if (rank == 0) {
        if (bind(s, (struct sockaddr *)&at, sizeof(at)) || listen(s, 1)
            || getsockname(s, (struct sockaddr *)&at, &len))
            die("listen");
        MPI_Send(&at.sin_port, 2, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        fd = accept(s, NULL, NULL);
        close(s);
    } else {
        MPI_Recv(&at.sin_port, 2, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (connect(s, (struct sockaddr *)&at, sizeof(at)))
            die("connect");
    }
    return fd;
}

static void join(int rounds)
{
    MPI_Comm inter;
    int fd = make_socket();

    for (int i = 0; i < rounds; i++) {
        ok(MPI_Comm_join(fd, &inter), "join");
        talk(inter);
        ok(MPI_Comm_disconnect(&inter), "disconnect");
    }
    close(fd);
}

int main(int argc, char **argv)
{
    const char *file = argc > 2 ? argv[2] : "";
    int rounds = argc > 3 ? atoi(argv[3]) : 1;

    MPI_Init(&argc, &argv);
    what = argc > 1 ? argv[1] : "?";
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (!strcmp(what, "accept") || !strcmp(what, "connect"))
        accept_or_connect(file, rounds, what[0] == 'a', false);
    else if (!strcmp(what, "keep-accept") || !strcmp(what, "keep-connect"))
        accept_or_connect(file, 1, what[5] == 'a', true);
    else if (!strcmp(what, "wrong"))
        wrong(file);
    else if (!strcmp(what, "close"))
        close_port(file);
    else if (!strcmp(what, "visit"))
        visit(file);
    else if (!strcmp(what, "die-accept") || !strcmp(what, "die-connect"))
        end_in_the_middle(file, what[4] == 'a', true);
    else if (!strcmp(what, "live-accept") || !strcmp(what, "live-connect"))
        end_in_the_middle(file, what[5] == 'a', false);
    else if (!strcmp(what, "spawn"))
        spawn(argv[0], "child", argc > 3 ? rounds : 2);
    else if (!strcmp(what, "child")) {
        be_child();
        spawn(argv[0], "grandchild", 1);
    } else if (!strcmp(what, "grandchild"))
        be_child();
    else if (!strcmp(what, "join"))
        join(rounds);
    else
        die("what is to be done?");
    MPI_Finalize();
    if (rank == 0)
        printf("%s: ok\n", what);
    return 0;
}
