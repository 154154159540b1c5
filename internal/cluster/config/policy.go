// SPDX-License-Identifier: Apache-2.0

package config

import "slices"

// Values of Policy's fields.
const (
	PolicyAuto    = "auto"
	PolicyEnforce = "enforce"
	PolicyNone    = "none"

	EstablishedCut  = "cut"
	EstablishedKeep = "keep"

	LogDenied = "denied"
	LogNone   = "none"
)

// Enforced reports whether policies are enforced with a network mode.
func (p Policy) Enforced(m Mode) bool {
	return p.Mode == PolicyEnforce || p.Mode == PolicyAuto && (m == ModeCluster || m == ModeNone || m == ModePolicy)
}

func (p Policy) check() error {
	switch {
	case !slices.Contains([]string{PolicyAuto, PolicyEnforce, PolicyNone}, p.Mode):
		return invalid("auto, enforce or none", "policy.mode %q is not known", p.Mode)
	case p.Established != EstablishedCut && p.Established != EstablishedKeep:
		return invalid("cut or keep", "policy.established %q is not known", p.Established)
	case p.Log != LogDenied && p.Log != LogNone:
		return invalid("denied or none", "policy.log %q is not known", p.Log)
	case p.LogGroup < 1 || p.LogGroup > 65535:
		return invalid("1 to 65535", "policy.logGroup %d is no group of nflog", p.LogGroup)
	}
	return nil
}
