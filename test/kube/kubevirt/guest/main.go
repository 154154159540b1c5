// SPDX-License-Identifier: Apache-2.0

// Command guest has what the guests of KubeVirt's functional tests need and Debian's packages lack: it stands in for
// cloud-init, and for the netcat of Alpine's test image.
//
//	guest seed DIR    configures the network and the name by the files of a NoCloud disk, and executes its script
//	nc ...            when it is executed by that name
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	err := run(filepath.Base(os.Args[0]), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

func run(name string, args []string) error {
	switch {
	case name == "nc":
		return netcat(args)
	case len(args) == 2 && args[0] == "seed":
		return seed(args[1])
	}
	return fmt.Errorf("arguments %q: want seed DIR", args)
}
