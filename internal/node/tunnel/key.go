// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/ecdh"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/kernel/wireguard"
	"github.com/weft-net/weft/internal/model"
)

// keyMode is the mode of a key file: flannel's is as closed.
const keyMode = 0o600

// What helps where a file holds no key.
const (
	hintPrivate = "delete it, and a new key is made; peers learn its public half"
	hintShared  = "write one into it, the same on all nodes: wg genpsk makes one"
)

// mostKey is how much of a key file is read.
const mostKey = 1 << 10

// readKey reads a key file.
func readKey(file, hint string) (wireguard.Secret, error) {
	f, err := os.Open(file)
	if err != nil {
		return wireguard.Secret{}, fmt.Errorf("wireguard: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostKey))
	if err != nil {
		return wireguard.Secret{}, fmt.Errorf("wireguard: key file %s: %w", file, err)
	}
	key, err := wireguard.ParseKey(string(b))
	if err != nil {
		return wireguard.Secret{}, model.Faultf(model.CodeInvalidConf, hint, "wireguard: key file %s: %v", file, err)
	}
	return key, nil
}

// makeKey reads a key file, and makes one where there is none. Others never see a part of one.
func makeKey(file string, random io.Reader) (wireguard.Secret, error) {
	key, err := readKey(file, hintPrivate)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	var b [wireguard.KeyLen]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return key, fmt.Errorf("wireguard: make a key: %w", err)
	}
	b[0] &= 248 // as Curve25519 wants it
	b[31] = b[31]&127 | 64
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return key, fmt.Errorf("wireguard: make a key: %w", err)
	}
	err = atomicfile.Create(file, []byte(base64.StdEncoding.EncodeToString(b[:])), keyMode, atomicfile.Durable)
	if err != nil && !errors.Is(err, fs.ErrExist) { // somebody was faster, and has told its key already
		return key, fmt.Errorf("wireguard: make a key: %w", err)
	}
	return readKey(file, hintPrivate)
}

// publicKey is a private key's other half.
func publicKey(s wireguard.Secret) (wireguard.PublicKey, error) {
	k, err := ecdh.X25519().NewPrivateKey(s[:])
	if err != nil {
		return wireguard.PublicKey{}, err
	}
	return wireguard.PublicKey(k.PublicKey().Bytes()), nil
}
