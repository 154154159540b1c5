// SPDX-License-Identifier: Apache-2.0

// Package masqagent follows the configuration file of ip-masq-agent, which lists the destinations for which pods'
// traffic is not masqueraded.
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
// it again. While the file cannot be read, its last valid content is used. Without a path it returns nil.
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
			log.Warn("network.masqAgentConfig is invalid; keeping the last valid version", "err", err)
		}
		return last.Except(), last.Resync
	}
}

// read reads the file; a missing file is an empty configuration.
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
	conf, warnings, err := flannel.ParseMasqAgent(text)
	if err != nil {
		return conf, fmt.Errorf("%s: %w", path, err)
	}
	for _, d := range warnings {
		log.Debug("network.masqAgentConfig has a warning", "field", d.Field, "warning", d.Msg, "hint", d.Hint)
	}
	return conf, nil
}
