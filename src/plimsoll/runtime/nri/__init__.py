"""NRI, the plugin interface of container runtimes: containers are adjusted when they are created and updated."""
