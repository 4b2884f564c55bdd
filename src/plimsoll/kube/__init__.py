"""The client of the Kubernetes API: requests and watch lines as plain values, kubeconfig, one thin HTTP transport."""
