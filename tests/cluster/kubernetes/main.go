// All components of Kubernetes in one program: kubernetes COMPONENT [flags].
//
// Built from released modules alone, so that the tests run what users run, wherever Go can fetch modules. The version is
// linked in by whoever builds it: without it the kubelet refuses to talk to the API server.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// What this program can be. Those of a node are added where they are linked in.
var components = map[string]func() *cobra.Command{
	"etcd":                    etcd,
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	program, arguments := filepath.Base(os.Args[0]), os.Args[1:]
	name := ""
	if len(arguments) > 0 {
		name = arguments[0]
	}
	component, found := components[name]
	if !found {
		fmt.Fprintf(os.Stderr, "usage: %s COMPONENT [flags]\ncomponents: %s\n", program, known())
		os.Exit(2)
	}
	os.Args = arguments
	os.Exit(cli.Run(component()))
}

func known() string {
	names := make([]string, 0, len(components))
	for name := range components {
		names = append(names, name)
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}
