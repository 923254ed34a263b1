"""The tutorial: a pod network built by hand, a lesson at a time, on two nodes of a lab that nothing else touches."""
