"""Pictures of robots: shapes, drawings of many poses, a camera, MuJoCo's renderer, films.

`shapes.py` says what a robot looks like, `drawing.py` puts shapes into the world, `camera.py` where they are looked at
from, `render.py` makes pixels, `picture.py` and `film.py` keep them. Imports what the command line may, and MuJoCo for
its renderer; Pillow and imageio are imported where they are used.
"""
