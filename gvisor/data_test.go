package gvisor_test

import (
	"bytes"
	"image/png"
	"testing"
	"time"

	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/tier/realtest"
)

// The libraries of the data image find every folder that they want to write to:
// caches of fonts and of pip, bytecode, shared memory, temporary tables. Nothing
// of it is there in the next run.
func TestFO55_DataImage(t *testing.T) {
	h := gvisortest.Open(t)
	if _, err := realtest.Images(t).Find(image.DataName); err != nil {
		t.Skipf("skipped: no data image; `sallyport sandbox build data` makes it (%v)", err)
	}
	r := py(`
import os, sys, io, tempfile, sqlite3, multiprocessing, threading, compileall, time
import numpy as np, pandas as pd
import matplotlib; matplotlib.use('Agg')
import matplotlib.pyplot as plt
assert matplotlib.get_cachedir() == os.environ['MPLCONFIGDIR'], matplotlib.get_cachedir()

a = np.arange(250000, dtype=float).reshape(500, 500)
assert np.allclose((a @ np.linalg.pinv(np.eye(500) + a / 1e7)).shape, (500, 500))
s = np.linalg.solve(np.array([[3., 1.], [1., 2.]]), np.array([9., 8.]))
assert np.allclose(s, [2, 3]), s

df = pd.DataFrame({'k': list('abca'), 'v': [1, 2, 3, 4], 't': pd.date_range('2024-01-01', periods=4, tz='Europe/Paris')})
df.to_csv('t.csv'); back = pd.read_csv('t.csv'); assert back.v.sum() == 10
assert df.groupby('k').v.sum().to_dict() == {'a': 5, 'b': 2, 'c': 3}
with sqlite3.connect('/tmp/t.db') as c:
    df[['k', 'v']].to_sql('t', c); assert pd.read_sql('select sum(v) s from t', c).s[0] == 10
    c.execute('pragma temp_store=1'); c.execute('create temp table big as select a.v from t a, t b, t c, t d order by random()')

def square(x): return int((np.ones(100) * x).sum())
with multiprocessing.Pool(2) as p: assert p.map(square, [1, 2, 3]) == [100, 200, 300]
from multiprocessing import shared_memory
m = shared_memory.SharedMemory(create=True, size=4096); m.buf[0] = 7; m.close(); m.unlink()

open('own.py', 'w').write('x = 1\n'); sys.path.insert(0, '.'); import own
assert os.path.exists('__pycache__')
d = os.path.join(os.environ['XDG_CACHE_HOME'], 'pip', 'http'); os.makedirs(d); open(d + '/x', 'w').write('x')
with tempfile.TemporaryDirectory() as d: np.save(d + '/a.npy', a[:10])

fig, ax = plt.subplots(figsize=(4, 3)); ax.plot(df.v); ax.set_title('Größe 日本 $\\alpha^2$'); ax.hist(np.random.rand(100))
out = io.BytesIO(); fig.savefig(out, format='png', dpi=80); fig.savefig('/tmp/f.pdf'); fig.savefig('f.svg')
assert os.listdir(os.environ['MPLCONFIGDIR'])
sys.stdout.buffer.write(out.getvalue())
`)
	r.Image, r.Limits.Timeout = image.DataName, 5*time.Minute
	began := time.Now()
	res := run(t, h, r)
	t.Logf("the whole run took %s, peak %d MiB", time.Since(began), res.PeakMemory>>20)
	if res.ExitCode != 0 || len(res.LimitsHit) > 0 || res.KilledBy != "" {
		t.Fatalf("exit %d %s, limits %v, stderr %s", res.ExitCode, res.KilledBy, res.LimitsHit, res.Stderr)
	}
	img, err := png.Decode(bytes.NewReader(res.Stdout))
	if err != nil || img.Bounds().Dx() != 320 || img.Bounds().Dy() != 240 {
		t.Fatalf("the plot: %v, %d bytes", err, len(res.Stdout))
	}
	r = sh("ls -A /tmp /dev/shm /home/agent /run; touch /usr/lib/python3/dist-packages/x")
	r.Image = image.DataName
	res = run(t, h, r)
	if want := "/dev/shm:\n\n/home/agent:\n\n/run:\n\n/tmp:\n"; string(res.Stdout) != want || !bytes.Contains(res.Stderr, []byte("Read-only file system")) {
		t.Errorf("left from the earlier run: %q, %s", res.Stdout, res.Stderr)
	}
}
