// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// daemon is "dhcp daemon", which the reference plugin has in the same program. Here it is weft that keeps leases: a program
// that starts for each call of each plugin has no room for it. Weft is looked for beside this program, then in PATH.
func daemon(env Env) int {
	weft, err := findWeft()
	if err != nil {
		fmt.Fprintf(env.Stderr, "weft: dhcp daemon: %v\nhint: it is the program weft that keeps leases: install it beside weft-plugin or into PATH\n", err)
		return 1
	}
	if env.Exec == nil {
		return 1
	}
	argv := append([]string{weft, "dhcp"}, env.Args...)
	if err := env.Exec(weft, argv, env.Environ); err != nil {
		fmt.Fprintf(env.Stderr, "weft: %s: %v\n", strings.Join(argv, " "), err)
	}
	return 1
}

func findWeft() (string, error) {
	if self, err := os.Executable(); err == nil { // where the link points to
		beside := filepath.Join(filepath.Dir(self), "weft")
		if st, err := os.Stat(beside); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return beside, nil
		}
	}
	return exec.LookPath("weft")
}
