/* A folder for one test, removed with all that is in it (no subfolders). */
#ifndef BROKER_TEMP_H
#define BROKER_TEMP_H

#define BROKER_TEMP_BYTES 256

void broker_temp_make(char dir[BROKER_TEMP_BYTES]);
void broker_temp_remove(const char *dir);

#endif
