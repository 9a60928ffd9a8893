#include "broker_temp.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void broker_temp_make(char dir[BROKER_TEMP_BYTES])
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(dir, BROKER_TEMP_BYTES, "%s/tidings-broker-XXXXXX",
                   base != NULL ? base : "/tmp");
    if (mkdtemp(dir) == NULL) {
        perror(dir);
        abort();
    }
}

void broker_temp_remove(const char *dir)
{
    DIR *d = opendir(dir);
    char path[BROKER_TEMP_BYTES + 300];
    const struct dirent *e = NULL;
    while (d != NULL && (e = readdir(d)) != NULL) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        (void)unlink(path); /* fails for . and .. */
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    (void)rmdir(dir);
}
