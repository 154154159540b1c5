// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// binVar is the variable with the directory of the programs under test.
const binVar = "WEFT_TEST_BIN"

// atOnce is how many tests run in parallel: each waits more than it works.
const atOnce = 4

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the programs once, outside the namespaces in which the tests run.
func run(m *testing.M) int {
	if os.Getenv(binVar) != "" {
		return nettest.MainParallel(m, atOnce)
	}
	dir, err := os.MkdirTemp("", "weft-agent-test")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = build(dir)
	}
	if err == nil {
		err = os.Setenv(binVar, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	return nettest.MainParallel(m, atOnce)
}

func build(dir string) error {
	for name, pkg := range map[string]string{
		"weft": "../../../cmd/weft", "weft-cni": "../../../cmd/weft-cni", "foreign": "./testdata/foreign",
		"weft-plugin": "../../../cmd/weft-plugin",
		"weft-guest":  "../../../cmd/weft-guest", "weft-agent": "../../../cmd/weft-agent",
		"weft-lab": "../../../cmd/weft-lab",
	} {
		if have := os.Getenv("WEFT_PROGRAMS"); have != "" && name != "weft-agent" && name != "foreign" {
			// the tag is for the agent alone
			b, err := os.ReadFile(filepath.Join(have, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), b, 0o755)
			}
			if err != nil {
				return err
			}
			continue
		}
		cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", "weftsteps,grpcnotrace", "-o",
			filepath.Join(dir, name), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return os.Symlink("weft-plugin", filepath.Join(dir, "flannel"))
}
