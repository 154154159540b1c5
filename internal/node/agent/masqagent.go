// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/flannel"
)

// exceptions says where the receiver sees pods' own addresses: what a configuration of ip-masq-agent says now. While it
// cannot be read, what it said last counts.
func (a *agent) exceptions() func() ([]netip.Prefix, time.Duration) {
	path := a.cfg.Network.MasqAgentConfig
	if path == "" {
		return nil
	}
	last, _, _ := flannel.ParseMasqAgent(nil)
	trouble := ""
	return func() ([]netip.Prefix, time.Duration) {
		conf, err := a.readMasqAgent(path)
		if err == nil {
			last, trouble = conf, ""
		} else if err.Error() != trouble {
			trouble = err.Error()
			a.cfg.Log.Warn("network.masqAgentConfig: what it said last counts", "err", err)
		}
		return last.Except(), last.Resync
	}
}

// readMasqAgent reads the file; one that is not there says nothing.
func (a *agent) readMasqAgent(path string) (flannel.MasqAgent, error) {
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
		a.cfg.Log.Debug("network.masqAgentConfig", "field", d.Field, "doubt", d.Msg, "hint", d.Hint)
	}
	return conf, nil
}
