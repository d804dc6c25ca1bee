/*
 * A sick disk, preloaded into a program: it stands between the program and libc for the calls by which SQLite writes,
 * and acts on one database only. Everything is told by the environment, and by flag files that come and go.
 *
 *   SHIM_DATABASE     the absolute path of the database; its -wal and -journal are meant too, its -shm never is
 *   SHIM_POWER        when set, keeps beside each file what would be left after a power loss, as FILE.durable
 *   SHIM_WRITEBACK    how many of 1000 writes reach the disk before they are synced, whole or torn at a sector, as a
 *                     kernel may write back (power loss only)
 *   SHIM_SEED         which ones
 *   SHIM_FAIL_SYNC    n: the n-th fsync fails with EIO
 *   SHIM_FAIL_WRITE   n: the n-th write fails, and those after it while SHIM_FLAGS/sick exists
 *   SHIM_ERRNO        with which error writes fail: a number, EIO by default
 *   SHIM_FLAGS        a directory; while one of these files is in it:
 *       hang          an fsync does not return
 *       fail-sync     an fsync fails with EIO
 *       fail-write    a write fails
 *     and these are put into it:
 *       hit           a fault has happened
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct Change {
  struct Change *next;
  off_t offset;
  size_t length; /* of the data; a truncation has none */
  int truncation;
  char data[];
} Change;

typedef struct File {
  struct File *next;
  char path[PATH_MAX];
  int linked; /* whether the directory on the disk has its name */
  Change *first, **last;
} File;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *database, *flags;
static char directory[PATH_MAX];
static int power, writeback, write_errno;
static long fail_sync, fail_write, syncs, writes;
static unsigned int seed;
static File *files;

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_ftruncate)(int, off_t), (*real_unlink)(const char *);

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
  fail_write = number("SHIM_FAIL_WRITE", 0);
  write_errno = number("SHIM_ERRNO", EIO);
  if (database != NULL) {
    snprintf(directory, sizeof directory, "%s", database);
    char *slash = strrchr(directory, '/');
    if (slash != NULL) *slash = '\0';
  }
}

static int is_ours(const char *path) {
  if (database == NULL) return 0;
  size_t length = strlen(database);
  if (strncmp(path, database, length) != 0) return 0;
  const char *rest = path + length;
  return *rest == '\0' || strcmp(rest, "-wal") == 0 || strcmp(rest, "-journal") == 0;
}

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

/* ---- What a power loss leaves ---- */

static void shadow_of(const File *file, char *path) {
  /* What is synced but has no name on the disk yet would be lost with its name. */
  snprintf(path, PATH_MAX, "%s.%s", file->path, file->linked ? "durable" : "nameless");
}

static File *file_of(const char *path) {
  for (File *file = files; file != NULL; file = file->next)
    if (strcmp(file->path, path) == 0) return file;
  File *file = calloc(1, sizeof *file);
  snprintf(file->path, sizeof file->path, "%s", path);
  file->last = &file->first;
  file->linked = 1;
  char shadow[PATH_MAX];
  shadow_of(file, shadow);
  file->linked = access(shadow, F_OK) == 0;
  file->next = files;
  return files = file;
}

static void apply(int shadow, const Change *change, size_t length) {
  int failed = change->truncation ? real_ftruncate(shadow, change->offset) != 0
                                  : real_pwrite(shadow, change->data, length, change->offset) < 0;
  if (failed) abort();
}

static size_t torn(size_t length) {
  size_t sectors = (length + 511) / 512 + 1, kept = rand_r(&seed) % sectors * 512;
  return kept < length ? kept : length;
}

static int open_shadow(const File *file) {
  char path[PATH_MAX];
  shadow_of(file, path);
  int shadow = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (shadow < 0) abort();
  return shadow;
}

static void forget(File *file) {
  for (Change *change = file->first, *next; change != NULL; change = next) {
    next = change->next;
    free(change);
  }
  file->first = NULL;
  file->last = &file->first;
}

static void remember(const char *path, const void *data, size_t length, off_t offset, int truncation) {
  Change *change = malloc(sizeof *change + length);
  *change = (Change){.offset = offset, .length = length, .truncation = truncation};
  if (length > 0) memcpy(change->data, data, length);
  pthread_mutex_lock(&lock);
  File *file = file_of(path);
  *file->last = change;
  file->last = &change->next;
  if (writeback > 0 && rand_r(&seed) % 1000 < writeback) {
    int shadow = open_shadow(file);
    apply(shadow, change, torn(length));
    close(shadow);
  }
  pthread_mutex_unlock(&lock);
}

static void make_durable(const char *path) {
  pthread_mutex_lock(&lock);
  File *file = file_of(path);
  int shadow = open_shadow(file);
  for (Change *change = file->first; change != NULL; change = change->next) apply(shadow, change, change->length);
  close(shadow);
  forget(file);
  pthread_mutex_unlock(&lock);
}

/* After a failed fsync the kernel takes the pages for clean: no later fsync brings them to the disk. */
static void lose(const char *path) {
  int kept = errno;
  pthread_mutex_lock(&lock);
  forget(file_of(path));
  pthread_mutex_unlock(&lock);
  errno = kept;
}

static void link_name(File *file) {
  char from[PATH_MAX], to[PATH_MAX];
  int exists = access(file->path, F_OK) == 0;
  shadow_of(file, from);
  if (file->linked) return;
  file->linked = 1;
  shadow_of(file, to);
  if (!exists) {
    file->linked = 0;
    real_unlink(to);
  } else if (rename(from, to) != 0) {
    int shadow = open(to, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (shadow >= 0) close(shadow);
  }
}

/* Names come and go on the disk when their directory is synced. */
static void make_names_durable(void) {
  pthread_mutex_lock(&lock);
  DIR *entries = opendir(directory);
  for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    if (is_ours(path)) file_of(path);
  }
  if (entries != NULL) closedir(entries);
  for (File *file = files; file != NULL; file = file->next) link_name(file);
  pthread_mutex_unlock(&lock);
}

static void remove_name(const char *path) {
  pthread_mutex_lock(&lock);
  File *file = file_of(path);
  forget(file);
  file->linked = 0;
  char nameless[PATH_MAX];
  shadow_of(file, nameless);
  real_unlink(nameless);
  pthread_mutex_unlock(&lock);
}

/* ---- Faults ---- */

static int write_fails(void) {
  long count = __atomic_add_fetch(&writes, 1, __ATOMIC_SEQ_CST);
  int fails = has_flag("fail-write") || (fail_write > 0 && (count == fail_write || (count > fail_write && has_flag("sick"))));
  if (!fails) return 0;
  put_flag("hit");
  errno = write_errno;
  return 1;
}

static int sync_fails(void) {
  long count = __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST);
  for (int seen = 0; has_flag("hang"); usleep(5000))
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
  if (write_fails()) return -1;
  ssize_t written = real_pwrite(fd, data, length, offset);
  if (power && written > 0) remember(path, data, written, offset, 0);
  return written;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return pwrite64(fd, data, length, offset); }

ssize_t write(int fd, const void *data, size_t length) {
  char path[PATH_MAX];
  if (!is_ours_fd(fd, path)) return real_write(fd, data, length);
  if (write_fails()) return -1;
  off_t offset = lseek(fd, 0, SEEK_CUR);
  ssize_t written = real_write(fd, data, length);
  if (power && written > 0) remember(path, data, written, offset, 0);
  return written;
}

int ftruncate64(int fd, off_t length) {
  char path[PATH_MAX];
  if (!is_ours_fd(fd, path)) return real_ftruncate(fd, length);
  int result = real_ftruncate(fd, length);
  if (power && result == 0) remember(path, NULL, 0, length, 1);
  return result;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

static int sync_file(int fd, int (*real)(int)) {
  char path[PATH_MAX];
  if (!is_ours_fd(fd, path)) {
    if (power && database != NULL && path_of(fd, path) && strcmp(path, directory) == 0) make_names_durable();
    return real(fd);
  }
  if (sync_fails()) {
    if (power) lose(path);
    return -1;
  }
  /* The shadow stands for the disk: waiting for the real one would add nothing. */
  if (!power) return real(fd);
  make_durable(path);
  return 0;
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
