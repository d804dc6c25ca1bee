/*
 * A sick disk, preloaded into a program: it stands between the program and libc for the calls by which SQLite writes,
 * and acts on one database only. Everything is told by the environment, and by flag files that come and go.
 *
 *   SHIM_DATABASE     the absolute path of the database; its -wal and -journal are meant too, its -shm never is
 *   SHIM_POWER        when set, keeps beside each file what would be left after a power loss, as FILE.durable; all
 *                     processes that write to the database must be told
 *   SHIM_WRITEBACK    how many of 1000 writes reach the disk before they are synced, whole or torn at a sector, as a
 *                     kernel may write back (power loss only)
 *   SHIM_SEED         which ones
 *   SHIM_FAIL_SYNC    n: the n-th fsync fails with EIO
 *   SHIM_KILL_SYNC    n: the program is killed at the n-th fsync, before it
 *   SHIM_KILL_PAGE    n: likewise, at the n-th write to the database itself: with a WAL these are the checkpoint's
 *   SHIM_FAIL_WRITE   n: the n-th write fails, and those after it while SHIM_FLAGS/sick exists
 *   SHIM_ERRNO        with which error writes fail: a number, EIO by default
 *   SHIM_SYNC_MS      how much longer each fsync takes, in milliseconds
 *   SHIM_FLAGS        a directory; while one of these files is in it:
 *       hang          an fsync does not return
 *       hang-checkpoint  an fsync of the database itself does not return
 *       fail-sync     an fsync fails with EIO
 *       fail-write    a write fails
 *       fail-checkpoint  a write to the database itself fails: with a WAL these are the checkpoint's
 *     and these are put into it:
 *       hit           a fault has happened
 *       told          a process was told of an fsync that had failed in another one (power loss only)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes that may differ between the file and the disk. */
typedef struct {
  off_t offset, length;
} Range;

static const char *const SUFFIXES[] = {"", "-wal", "-journal"};
#define FILES 3

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *database, *flags;
static char directory[PATH_MAX];
static int power, writeback, write_errno;
static long fail_sync, kill_sync, kill_page, fail_write, sync_ms, syncs, pages, writes;
static unsigned int seed;
static int lock_file;
/* Those of before the process began are told to nobody: of a file that is opened later Linux tells nothing old. */
static off_t errors_at_start[FILES], errors_made[FILES];
static __thread off_t errors_told[FILES];

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_ftruncate)(int, off_t), (*real_unlink)(const char *);

static void start_power(void);

static long number(const char *name, long preset) {
  const char *text = getenv(name);
  return text == NULL || *text == '\0' ? preset : atol(text);
}

static void start(void) {
  real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
  real_write = dlsym(RTLD_NEXT, "write");
  real_fsync = dlsym(RTLD_NEXT, "fsync");
  real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
  real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
  real_unlink = dlsym(RTLD_NEXT, "unlink");
  database = getenv("SHIM_DATABASE");
  flags = getenv("SHIM_FLAGS");
  power = getenv("SHIM_POWER") != NULL;
  writeback = number("SHIM_WRITEBACK", 0);
  seed = number("SHIM_SEED", 1);
  fail_sync = number("SHIM_FAIL_SYNC", 0);
  kill_sync = number("SHIM_KILL_SYNC", 0);
  kill_page = number("SHIM_KILL_PAGE", 0);
  fail_write = number("SHIM_FAIL_WRITE", 0);
  write_errno = number("SHIM_ERRNO", EIO);
  sync_ms = number("SHIM_SYNC_MS", 0);
  if (database != NULL) {
    snprintf(directory, sizeof directory, "%s", database);
    char *slash = strrchr(directory, '/');
    if (slash != NULL) *slash = '\0';
  }
  if (power && database != NULL) start_power();
}

/* Which of the database's files it is, or -1. */
static int index_of(const char *path) {
  if (database == NULL) return -1;
  size_t length = strlen(database);
  if (strncmp(path, database, length) != 0) return -1;
  for (int index = 0; index < FILES; index++)
    if (strcmp(path + length, SUFFIXES[index]) == 0) return index;
  return -1;
}

static int is_ours(const char *path) { return index_of(path) >= 0; }

static int path_of(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return 1;
}

/* Keeps errno, so that it can be asked for anywhere. */
static int is_ours_fd(int fd, char *path) {
  pthread_once(&once, start);
  if (database == NULL) return 0;
  int kept = errno;
  int found = path_of(fd, path) && is_ours(path);
  errno = kept;
  return found;
}

static int has_flag(const char *name) {
  if (flags == NULL) return 0;
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", flags, name);
  int kept = errno;
  int found = access(path, F_OK) == 0;
  errno = kept;
  return found;
}

static void put_flag(const char *name) {
  if (flags == NULL) return;
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", flags, name);
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd >= 0) close(fd);
}

/* ---- What a power loss leaves ----
 *
 * Several processes may write to one file, and what a killed one wrote is still in the page cache: whoever syncs the
 * file next brings it to the disk. So nothing is kept in a process. Beside each file are, under one lock for all:
 *
 *   FILE.durable    what the disk has under its name
 *   FILE.nameless   what is synced of a file whose name the disk does not have yet, and would be lost with it
 *   FILE.unlinked   when FILE.durable is of a file that was unlinked, and the disk does not know that yet
 *   FILE.dirty      the ranges that were written since the last fsync
 *   FILE.errors     a byte for each fsync that failed
 */

static void beside(const char *path, const char *what, char *result) {
  if (snprintf(result, PATH_MAX, "%s.%s", path, what) >= PATH_MAX) abort();
}

static int open_beside(const char *path, const char *what, int mode) {
  char name[PATH_MAX];
  beside(path, what, name);
  int fd = open(name, mode | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) abort();
  return fd;
}

static int exists_beside(const char *path, const char *what) {
  char name[PATH_MAX];
  beside(path, what, name);
  return access(name, F_OK) == 0;
}

static void remove_beside(const char *path, const char *what) {
  char name[PATH_MAX];
  beside(path, what, name);
  real_unlink(name);
}

/* The lock of a process that is killed is gone with it. Threads of one process share the descriptor. */
static void lock_files(void) {
  pthread_mutex_lock(&lock);
  while (flock(lock_file, LOCK_EX) != 0)
    if (errno != EINTR) abort();
}

/* Keeps errno: what is told of it is about the real call. */
static void unlock_files(void) {
  int kept = errno;
  flock(lock_file, LOCK_UN);
  pthread_mutex_unlock(&lock);
  errno = kept;
}

static int is_linked(const char *path) { return exists_beside(path, "durable") && !exists_beside(path, "unlinked"); }

static int open_shadow(const char *path) { return open_beside(path, is_linked(path) ? "durable" : "nameless", O_RDWR); }

/* Before the write: killed in between, a process leaves a range that was not changed, and that is harmless. */
static void remember(const char *path, off_t offset, off_t length) {
  Range range = {offset, length};
  int dirty = open_beside(path, "dirty", O_WRONLY | O_APPEND);
  if (real_write(dirty, &range, sizeof range) != sizeof range) abort();
  close(dirty);
}

static void forget(const char *path) { close(open_beside(path, "dirty", O_WRONLY | O_TRUNC)); }

static size_t torn(size_t length) {
  size_t sectors = (length + 511) / 512 + 1, kept = rand_r(&seed) % sectors * 512;
  return kept < length ? kept : length;
}

static int is_written_back(void) { return writeback > 0 && rand_r(&seed) % 1000 < writeback; }

static void write_back(const char *path, const void *data, size_t length, off_t offset) {
  int shadow = open_shadow(path);
  if (real_pwrite(shadow, data, torn(length), offset) < 0) abort();
  close(shadow);
}

static void truncate_back(const char *path, off_t length) {
  int shadow = open_shadow(path);
  if (real_ftruncate(shadow, length) != 0) abort();
  close(shadow);
}

static void copy(int from, int to, Range range) {
  char buffer[65536];
  while (range.length > 0) {
    size_t wanted = range.length < (off_t)sizeof buffer ? (size_t)range.length : sizeof buffer;
    ssize_t count = pread(from, buffer, wanted, range.offset);
    if (count < 0 || (count > 0 && real_pwrite(to, buffer, count, range.offset) != count)) abort();
    /* The file was truncated since. */
    if (count == 0) return;
    range.offset += count;
    range.length -= count;
  }
}

/* Whoever wrote it: an fsync is for the file. Another descriptor of it may not be opened, for closing that one would
   drop the locks that SQLite has on it. */
static void make_durable(int fd, const char *path) {
  int shadow = open_shadow(path), dirty = open_beside(path, "dirty", O_RDWR);
  for (Range range; read(dirty, &range, sizeof range) == sizeof range;) copy(fd, shadow, range);
  struct stat now;
  if (fstat(fd, &now) != 0 || real_ftruncate(shadow, now.st_size) != 0 || real_ftruncate(dirty, 0) != 0) abort();
  close(shadow);
  close(dirty);
}

static off_t errors_of(const char *path) {
  char name[PATH_MAX];
  struct stat errors;
  beside(path, "errors", name);
  return stat(name, &errors) == 0 ? errors.st_size : 0;
}

/* After a failed fsync the kernel takes the pages for clean: no later fsync brings them to the disk. */
static void lose(const char *path) {
  forget(path);
  int errors = open_beside(path, "errors", O_WRONLY | O_APPEND);
  if (real_write(errors, "", 1) != 1) abort();
  close(errors);
  errors_told[index_of(path)] = errors_made[index_of(path)] = errors_of(path);
}

/* Linux tells every descriptor that is open, once: errseq_t, since 4.13. A thread stands for the descriptors of its
   connection. */
static int is_told(const char *path) {
  int index = index_of(path);
  off_t errors = errors_of(path);
  if (errors == errors_at_start[index] || errors == errors_told[index]) return 0;
  errors_told[index] = errors;
  if (errors != errors_made[index]) put_flag("told");
  return 1;
}

/* Names come and go on the disk when their directory is synced. */
static void make_name_durable(const char *path) {
  if (is_linked(path)) return;
  char nameless[PATH_MAX], durable[PATH_MAX];
  beside(path, "nameless", nameless);
  beside(path, "durable", durable);
  if (access(path, F_OK) != 0) real_unlink(durable);
  else if (rename(nameless, durable) != 0) close(open_beside(path, "durable", O_RDWR | O_TRUNC));
  remove_beside(path, "unlinked");
}

static void make_names_durable(void) {
  lock_files();
  for (int index = 0; index < FILES; index++) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", database, SUFFIXES[index]);
    make_name_durable(path);
  }
  unlock_files();
}

static void remove_name(const char *path) {
  lock_files();
  forget(path);
  remove_beside(path, "nameless");
  if (exists_beside(path, "durable")) close(open_beside(path, "unlinked", O_WRONLY));
  unlock_files();
}

static void start_power(void) {
  lock_file = open_beside(database, "lock", O_RDWR);
  for (int index = 0; index < FILES; index++) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", database, SUFFIXES[index]);
    errors_at_start[index] = errors_of(path);
  }
}

/* ---- Faults ---- */

static void kill_at(long wanted, long *counter) {
  if (__atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST) != wanted) return;
  put_flag("hit");
  kill(getpid(), SIGKILL);
}

static int write_fails(const char *path) {
  if (index_of(path) == 0) kill_at(kill_page, &pages);
  long count = __atomic_add_fetch(&writes, 1, __ATOMIC_SEQ_CST);
  int fails = has_flag("fail-write") || (index_of(path) == 0 && has_flag("fail-checkpoint")) ||
              (fail_write > 0 && (count == fail_write || (count > fail_write && has_flag("sick"))));
  if (!fails) return 0;
  put_flag("hit");
  errno = write_errno;
  return 1;
}

static int sync_fails(const char *path) {
  static long kills;
  kill_at(kill_sync, &kills);
  long count = __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST);
  if (sync_ms > 0) usleep(sync_ms * 1000);
  for (int seen = 0; has_flag("hang") || (index_of(path) == 0 && has_flag("hang-checkpoint")); usleep(5000))
    if (!seen++) put_flag("hit");
  if (count != fail_sync && !has_flag("fail-sync")) return 0;
  put_flag("hit");
  errno = EIO;
  return 1;
}

/* ---- The calls ---- */

ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset) {
  char path[PATH_MAX];
  if (!is_ours_fd(fd, path)) return real_pwrite(fd, data, length, offset);
  if (write_fails(path)) return -1;
  if (!power) return real_pwrite(fd, data, length, offset);
  lock_files();
  remember(path, offset, length);
  ssize_t written = real_pwrite(fd, data, length, offset);
  if (written > 0 && is_written_back()) write_back(path, data, written, offset);
  unlock_files();
  return written;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return pwrite64(fd, data, length, offset); }

ssize_t write(int fd, const void *data, size_t length) {
  char path[PATH_MAX];
  if (!is_ours_fd(fd, path)) return real_write(fd, data, length);
  ssize_t written = pwrite64(fd, data, length, lseek(fd, 0, SEEK_CUR));
  if (written > 0) lseek(fd, written, SEEK_CUR);
  return written;
}

int ftruncate64(int fd, off_t length) {
  char path[PATH_MAX];
  if (!is_ours_fd(fd, path) || !power) return real_ftruncate(fd, length);
  lock_files();
  struct stat before;
  if (fstat(fd, &before) != 0) abort();
  if (before.st_size > length) remember(path, length, before.st_size - length);
  int result = real_ftruncate(fd, length);
  if (result == 0 && is_written_back()) truncate_back(path, length);
  unlock_files();
  return result;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

static int sync_file(int fd, int (*real)(int)) {
  char path[PATH_MAX];
  if (!is_ours_fd(fd, path)) {
    if (power && database != NULL && path_of(fd, path) && strcmp(path, directory) == 0) make_names_durable();
    return real(fd);
  }
  int fails = sync_fails(path);
  /* The shadow stands for the disk: waiting for the real one would add nothing. */
  if (!power) return fails ? -1 : real(fd);
  lock_files();
  if (fails) lose(path);
  else make_durable(fd, path);
  if (!fails) fails = is_told(path);
  unlock_files();
  errno = fails ? EIO : errno;
  return fails ? -1 : 0;
}

int fsync(int fd) {
  pthread_once(&once, start);
  return sync_file(fd, real_fsync);
}

int fdatasync(int fd) {
  pthread_once(&once, start);
  return sync_file(fd, real_fdatasync);
}

int unlink(const char *path) {
  pthread_once(&once, start);
  int result = real_unlink(path);
  if (power && result == 0 && is_ours(path)) remove_name(path);
  return result;
}
