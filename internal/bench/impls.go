// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Impls returns the implementations to measure: the peers ("[NAME=]DIR"; NAME defaults to the directory's name), then
// the forms of weft ("standalone", "agent") from binDir; agent is the program weft-agent.
func Impls(peers, forms []string, binDir, agent string) ([]Impl, error) {
	var impls []Impl
	for _, p := range peers {
		name, dir, ok := strings.Cut(p, "=")
		if !ok {
			name, dir = filepath.Base(p), p
		}
		impls = append(impls, Impl{Name: name, BinDir: dir, Peer: true})
	}
	for _, form := range forms {
		switch form {
		case "standalone":
			impls = append(impls, Impl{Name: "weft-standalone", BinDir: binDir})
		case "agent":
			impls = append(impls, Impl{Name: "weft-agent", BinDir: binDir, Agent: agent})
		default:
			return nil, model.NotOneOf("--weft", form, "standalone", "agent")
		}
	}
	seen := map[string]bool{}
	for _, i := range impls {
		if seen[i.Name] {
			return nil, model.Errorf(model.CodeInvalidConf, "name them: --peer-bin-dir NAME=DIR",
				"--peer-bin-dir: two implementations are called %q", i.Name)
		}
		seen[i.Name] = true
		if st, err := os.Stat(i.BinDir); err != nil || !st.IsDir() {
			return nil, model.Errorf(model.CodeIO, "run make build, or install the peer's plugins",
				"directory of %s: %s is not a directory", i.Name, i.BinDir)
		}
	}
	return impls, nil
}
