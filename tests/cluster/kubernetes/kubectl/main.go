// kubectl by itself: linked together with the components it would take twice the processor time to start, and a run of all
// scenarios starts it a thousand times. As with them, the version is linked in by whoever builds it.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() {
	os.Exit(cli.Run(cmd.NewDefaultKubectlCommand()))
}
