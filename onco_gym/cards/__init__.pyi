from onco_gym.cards.citations import citation as citation
from onco_gym.cards.folder import CardError as CardError
from onco_gym.cards.folder import card_files as card_files
from onco_gym.cards.folder import card_id as card_id
from onco_gym.cards.load import digest as digest
from onco_gym.cards.load import load_card as load_card
from onco_gym.cards.schema import Card as Card
