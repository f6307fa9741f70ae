"""A page in a browser that shows a robot and lets targets be dragged.

`scene.py` knows the nodes and handles, `panel.py` text and sliders, `playing.py` a path, `following.py` the loop that
solves, `poses.py` the kinematics of what is drawn, `aims.py` what can be dragged of a problem, `view.py` puts them
together. Imports what `pictures` may, `pictures`, solvers; viser is imported where it is used.
"""
