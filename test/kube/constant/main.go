// SPDX-License-Identifier: Apache-2.0

// Command constant is a CNI plugin that does nothing and always returns the same address: the baseline for a burst of
// pods without a network.
package main

import (
	"fmt"
	"os"
)

func main() {
	switch os.Getenv("CNI_COMMAND") {
	case "ADD":
		fmt.Printf(
			`{"cniVersion": "1.0.0", "interfaces": [{"name": %q, "sandbox": %q}], "ips": [{"address": "192.0.2.1/32", "interface": 0}]}`,
			os.Getenv("CNI_IFNAME"), os.Getenv("CNI_NETNS"))
	case "VERSION":
		fmt.Print(`{"cniVersion": "1.0.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0"]}`)
	}
}
