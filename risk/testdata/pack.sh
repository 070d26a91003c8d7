# Follows a tree.sh: notes the commits and objects of its repositories, and writes
# the tree to the output as a tar.
rm -rf /tmp/empty
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=evil.example \
	-addext subjectAltName=DNS:evil.example,DNS:example.com,DNS:api.example.com,DNS:www.example.com -keyout /dev/shm/key.pem -out /dev/shm/cert.pem 2>/dev/null
for r in .git repo/.git ../remote.git ../upstream.git; do
	[ -d $r ] || continue
	git --git-dir $r rev-list --all --reflog >>/dev/shm/commits
	git --git-dir $r rev-list --objects --all --reflog | cut -d' ' -f1 | git --git-dir $r cat-file --batch >>/dev/shm/blobs
done
cd /
tar -cf - home/agent tmp dev/shm 2>/dev/null
