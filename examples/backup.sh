#!/usr/bin/env bash
# Keeps backups of a running Gable in a folder, and reads the newest one back to see that it is whole: for a timer or cron.
#
#   GABLE_CONFIG=/etc/gable/gable.toml examples/backup.sh /backup/gable [HOW MANY TO KEEP]
#
# Backups in one folder share what has not changed, so this may run every hour. Copy the folder elsewhere afterwards: a
# backup on the same disk is none.
set -euo pipefail

folder=${1:?name the folder for the backups}
keep=${2:-30}
# What is in it opens everything: hooks and variables are sealed with the instance's key, and the key is in it.
umask 077

gable backup --folder "$folder" --keep "$keep" --quiet
gable backup --folder "$folder" --verify --quiet
gable backup --folder "$folder" --list

# To bring the newest one back, into an empty data folder:
#
#   gable restore --data /var/lib/gable "$folder"
