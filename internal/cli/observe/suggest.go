// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/flow"
)

// suggestion prints at the end NetworkPolicies that allow the flows.
type suggestion struct {
	*flow.Suggestion
	w, errs io.Writer
	// all: denied flows are to be allowed, too.
	all bool
}

func (s suggestion) record(r flow.Record) error {
	if s.all || r.Verdict == flow.Allowed {
		s.Add(r)
	}
	return nil
}

func (s suggestion) end() error {
	policies, notes := s.Policies()
	for _, note := range notes {
		ui.Warn(s.errs, errors.New("not in the policies: "+note))
	}
	if len(policies) == 0 {
		ui.Warn(s.errs, errors.New("no flow was seen for which a policy could be suggested"))
	}
	for _, p := range policies {
		b, err := yaml.Marshal(p)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(s.w, "---\n%s", b); err != nil {
			return err
		}
	}
	return nil
}
