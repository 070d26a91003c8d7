"""Shows figures of matplotlib by saving them in the output folder."""
import atexit, os

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase as FigureManager
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas


def show(*args, **kwargs):
    folder, n = os.environ.get("SALLYPORT_OUTPUT", "."), 0
    for manager in Gcf.get_all_fig_managers():
        while not n or os.path.exists(path):
            n += 1
            path = os.path.join(folder, f"figure-{n}.png")
        manager.canvas.figure.savefig(path)
    Gcf.destroy_all()


atexit.register(show)
