"""`plimsoll attach --mode …` and `plimsoll detach`: effective Memory QoS on nodes of any cluster, and its end."""
