// SPDX-License-Identifier: Apache-2.0

// Package masqagent follows the configuration file of ip-masq-agent, which lists the destinations that see pods' own
// addresses.
package masqagent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/flannel"
)

// Follow returns a function that reads the file and returns the destinations that are not masqueraded, and when to read
// it again. While the file cannot be read, what it said last counts. Without a path it returns nil.
func Follow(path string, log *slog.Logger) func() ([]netip.Prefix, time.Duration) {
	if path == "" {
		return nil
	}
	last, _, _ := flannel.ParseMasqAgent(nil)
	trouble := ""
	return func() ([]netip.Prefix, time.Duration) {
		conf, err := read(path, log)
		if err == nil {
			last, trouble = conf, ""
		} else if err.Error() != trouble {
			trouble = err.Error()
			log.Warn("network.masqAgentConfig: what it said last counts", "err", err)
		}
		return last.Except(), last.Resync
	}
}

// read reads the file; one that is not there says nothing.
func read(path string, log *slog.Logger) (flannel.MasqAgent, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = nil, nil
	}
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	if err != nil {
		return flannel.MasqAgent{}, fmt.Errorf("%s: %w", path, err)
	}
	if string(text) == "null" {
		text = nil
	}
	conf, doubts, err := flannel.ParseMasqAgent(text)
	if err != nil {
		return conf, fmt.Errorf("%s: %w", path, err)
	}
	for _, d := range doubts {
		log.Debug("network.masqAgentConfig", "field", d.Field, "doubt", d.Msg, "hint", d.Hint)
	}
	return conf, nil
}
