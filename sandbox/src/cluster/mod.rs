//! The built-in controllers, the scheduler and the kubelet. They see the API server through a `kube::Client` only.
