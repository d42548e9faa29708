#!/usr/bin/env bash
# Makes a backup of a running server into a folder and verifies it; for a timer or cron.
#
#   GABLE_CONFIG=/etc/gable/gable.toml examples/backup.sh /backup/gable [NUMBER OF BACKUPS TO KEEP]
#
# Backups in one folder share unchanged files, so this can run every hour. Copy the folder to another machine afterwards: a
# backup on the same disk does not survive the loss of that disk.
set -euo pipefail

folder=${1:?specify the folder for the backups}
keep=${2:-30}
# A backup contains all secrets and the key that decrypts them.
umask 077

gable backup --folder "$folder" --keep "$keep" --quiet
gable backup --folder "$folder" --verify --quiet
gable backup --folder "$folder" --list

# To restore the newest one into an empty data folder:
#
#   gable restore --data /var/lib/gable "$folder"
