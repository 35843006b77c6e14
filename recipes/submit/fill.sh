set -u
python="${PYTHON:-python}"
shared={{ shared }}

exec "$python" -m pytest_vlmrobust.cli fill --copy-to "$shared/parts/${{ index }}" -- {{ options }}
