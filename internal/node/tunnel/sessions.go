// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/weft-net/weft/internal/kernel/wireguard"
)

// An initiation of a session is lost if the peer does not know this node yet. Two that cross are both rejected, or, if
// device handles an initiation and a response at the same moment, become a session in which one of the two nodes decrypts
// nothing. WireGuard repeats an initiation only after five seconds (RekeyTimeout), and notices after 15 s that nothing is
// decrypted; for so long two nodes that are new would not reach each other.
//
// So the two nodes of a pair take turns: the one with the lower public key initiates at once, and each initiates after the
// other while there is no session, turns times in all, after firstTurn, and then after twice the time before.
const (
	turns     = 5
	firstTurn = 250 * time.Millisecond
)

// sessions begins sessions with the new peers of a device in user space, whether there are packets for them or not: a peer
// that has a session with the device before this one sends packets that cannot be decrypted, and notices only after 15 s
// without an answer.
type sessions struct {
	dev   *device.Device
	after func(time.Duration) <-chan time.Time
	ctx   context.Context
	end   context.CancelFunc
	parts sync.WaitGroup
}

func newSessions(dev *device.Device, after func(time.Duration) <-chan time.Time) *sessions {
	s := &sessions{dev: dev, after: after}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// close ends the retries.
func (s *sessions) close() {
	s.end()
	s.parts.Wait()
}

// begin initiates a session with each of some new peers of the device with the public key own.
func (s *sessions) begin(own wireguard.PublicKey, peers []wireguard.PublicKey) {
	if len(peers) == 0 {
		return
	}
	s.initiate(0, own, peers)
	s.parts.Go(func() { s.repeat(own, peers) })
}

// initiate initiates sessions with those of the peers where it is this node's turn.
func (s *sessions) initiate(turn int, own wireguard.PublicKey, peers []wireguard.PublicKey) {
	for _, key := range peers {
		if (bytes.Compare(own[:], key[:]) < 0) != (turn%2 == 0) {
			continue
		}
		if peer := s.dev.LookupPeer(device.NoisePublicKey(key)); peer != nil {
			peer.ExpireCurrentKeypairs() // otherwise nothing is sent within RekeyTimeout of the initiation before
			peer.SendKeepalive()         // it needs a session
		}
	}
}

// repeat initiates sessions with those of the peers that have none yet.
func (s *sessions) repeat(own wireguard.PublicKey, peers []wireguard.PublicKey) {
	wait := firstTurn
	for turn := 1; turn < turns; turn++ {
		select {
		case <-s.after(wait):
		case <-s.ctx.Done():
			return
		}
		text, err := s.dev.IpcGet()
		if err != nil {
			return // the device is closed
		}
		if peers = without(peers, text); len(peers) == 0 {
			return
		}
		s.initiate(turn, own, peers)
		wait *= 2
	}
}

// without returns those of the keys with whose peers a device has no session yet. text is the device in WireGuard's text
// protocol.
func without(keys []wireguard.PublicKey, text string) (out []wireguard.PublicKey) {
	established := map[string]bool{}
	key := ""
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch name {
		case "public_key":
			key = value
		case "last_handshake_time_sec":
			established[key] = value != "0"
		}
	}
	for _, k := range keys {
		if !established[hex.EncodeToString(k[:])] {
			out = append(out, k)
		}
	}
	return out
}
