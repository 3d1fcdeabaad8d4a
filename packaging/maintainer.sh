#!/bin/sh
# dpkg runs this as postinst, prerm and postrm: systemd learns of the unit and forgets it. Models that somebody put
# into /var/lib/mere.run stay.
set -e
on_systemd() {
  if [ -d /run/systemd/system ]; then systemctl "$@" || true; fi
}
case "${0##*[./]} $1" in
  'postinst configure')
    on_systemd daemon-reload
    on_systemd try-restart mere.run.service
    ;;
  'prerm remove') on_systemd disable --now mere.run.service ;;
  'postrm remove') on_systemd daemon-reload ;;
  'postrm purge')
    rm -rf /var/cache/mere.run /var/cache/private/mere.run
    for folder in /var/lib/mere.run /var/lib/private/mere.run; do
      if [ -L "$folder" ] && ! [ -e "$folder/models" ]; then rm "$folder"; fi
      if [ -d "$folder" ]; then rmdir --ignore-fail-on-non-empty "$folder"; fi
    done
    ;;
esac
