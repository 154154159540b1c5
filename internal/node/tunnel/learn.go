// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"encoding/json"

	"github.com/weft-net/weft/internal/plan/mesh"
)

// learned is what is found out once, for the configuration that it was found out for.
type learned struct {
	wireguard *mesh.WireguardLearned
	keyFile   string
	output    *string
	command   string
}

// Learn says what the plan must know: WireGuard's public key and who carries it, and what an extension's first command
// printed.
func (r *Runner) Learn(ctx context.Context, cfg mesh.Config) (map[string]string, error) {
	switch cfg.Backend {
	case "wireguard":
		l, err := r.learnWireguard(cfg.Wireguard)
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
