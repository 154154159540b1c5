// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"encoding/json"

	"github.com/weft-net/weft/internal/plan/mesh"
)

// learned caches the result of Learn for one configuration.
type learned struct {
	wireguard *mesh.WireGuardLearned
	keyFile   string
	output    *string
	command   string
}

// Learn returns the plan's inputs: WireGuard's public key and where it runs, and the output of an extension's first
// command.
func (r *Runner) Learn(ctx context.Context, cfg mesh.Config) (map[string]string, error) {
	switch cfg.Backend {
	case "wireguard":
		l, err := r.learnWireguard(cfg.WireGuard)
		if err != nil {
			return nil, err
		}
		b, err := json.Marshal(l)
		return map[string]string{"wireguard": string(b)}, err
	case "extension":
		out, err := r.learnExtension(ctx, cfg.Extension.PreStartupCommand)
		return map[string]string{"extension": out}, err
	}
	return nil, nil
}

func (r *Runner) learnExtension(ctx context.Context, command string) (string, error) {
	if command == "" {
		return "", nil
	}
	if r.learned.output == nil || r.learned.command != command {
		out, err := r.command(ctx, command, nil, "")
		if err != nil {
			return "", err
		}
		r.learned.output, r.learned.command = &out, command
	}
	return *r.learned.output, nil
}
