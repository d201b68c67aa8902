"""The text that a model's layers are tried on: passages, and a question that each of them answers.

Owns the words. Every second question is put in other words than its passage.
"""

from __future__ import annotations

PASSAGES: tuple[tuple[str, str], ...] = (
    (
        "The lighthouse at Corran Point was lit for the first time in 1871. Its lamp burned rape "
        "oil until the keeper's son fitted a paraffin burner, and the light could then be seen "
        "from nineteen miles away on a clear night.",
        "In which year was the lighthouse at Corran Point first lit?",
    ),
    (
        "Bread dough that has risen overnight in a cold room tastes better, because the yeast "
        "works slowly. If the crust turns pale, leave the oven door open a finger's width for the"
        " last five minutes so that steam can leave.",
        "My loaves do not get brown on the outside; what should I do?",
    ),
    (
        "The function `load_settings` reads the file `service.ini`, and falls back to the built-"
        "in values if it does not exist. Unknown keys are reported once and then ignored; a value"
        " of the wrong type stops the program.",
        "What does load_settings do with unknown keys?",
    ),
    (
        "Goats were brought to the island by sailors who wanted meat on their way home. Within "
        "sixty years the animals had eaten every young tree on the northern slopes, and the "
        "springs there ran dry in summer.",
        "Why was there no more water in the hot months?",
    ),
    (
        "Invoices are numbered without gaps. A cancelled invoice keeps its number and is marked "
        "with a red V; the replacement gets the next free number and names the old one in its "
        "second line.",
        "How is a cancelled invoice marked?",
    ),
    (
        "To join two ropes of unequal thickness, make a loop in the thicker one and pass the "
        "thinner one through it from below, once around both strands, and under itself. Sailors "
        "call this knot the sheet bend.",
        "How can cords be tied together if one is much fatter?",
    ),
    (
        "The committee met on nine Thursdays. Alma Rydell took the minutes, Jonas Pike spoke for "
        "the fishermen, and the harbour master, who was against the new pier from the start, came"
        " only once.",
        "Who took the minutes of the committee?",
    ),
    (
        "A worker thread takes a job from the queue, runs it with a time limit of forty seconds, "
        "and puts the outcome into the table of results. When three jobs in a row have failed the"
        " thread ends and another takes its place.",
        "After how many errors does a helper give up?",
    ),
    (
        "Glass is made from sand, soda and lime at about 1,500 degrees. Iron in the sand colours "
        "it green, which is why cheap bottles are green; a little manganese takes the colour away"
        " again.",
        "What takes the green colour of glass away?",
    ),
    (
        "Children under six travel free of charge on all ferries of the company. Bicycles need a "
        "ticket of their own, which is sold on the quay only, and dogs have to stay on the upper "
        "deck.",
        "Where may I bring my pet?",
    ),
    (
        "The northern tunnel is 412 metres long. It was dug by hand through soft clay between two"
        " winters, and lined with brick from the works at Ansel, of which eleven thousand were "
        "found to be cracked and sent back.",
        "How long is the northern tunnel?",
    ),
    (
        "Before it is stored, each picture is made smaller until its longer side has 2,048 dots, "
        "and the place where it was taken is removed from it. The original is never written to "
        "the disk.",
        "Can others learn from my photos where I live?",
    ),
    (
        "In the second movement the cellos carry the theme while the rest of the orchestra is "
        "silent. The composer wrote to his sister that he had heard the melody from a ferryman on"
        " the river Sollen.",
        "From whom did the composer hear the melody?",
    ),
    (
        "Potatoes are planted when the soil has reached eight degrees, a hand's width deep and "
        "two feet apart. When the leaves turn yellow the water is stopped, and the crop is lifted"
        " three weeks later.",
        "When do I put the tubers into the ground?",
    ),
    (
        "If the disk is full the journal is closed at the last complete record and the program "
        "goes on in memory. It says so once, on the console, and tries to write again after every"
        " ten minutes.",
        "What happens to the journal if the disk is full?",
    ),
    (
        "The old post road crossed the pass at 2,210 metres. From November to April the mail was "
        "carried over it on skis by two brothers from the village of Hollen, who were paid by "
        "weight.",
        "How did letters reach the other side of the mountains in winter?",
    ),
    (
        "A bee that has found flowers dances on the comb when it comes home. The angle of the "
        "dance against the vertical gives the direction relative to the sun, and the speed tells "
        "how far it is.",
        "What does the speed of the bee's dance tell?",
    ),
    (
        "The lease may be ended by either side with three months' notice at the end of a quarter."
        " The deposit is paid back within six weeks after the keys were returned, less the cost "
        "of any damage.",
        "How much earlier must I tell my landlord that I move out?",
    ),
    (
        "Server `atlas-4` holds the archive of the years before 2009. It is switched on only on "
        "Mondays, since its power supply gets hot, and copies are kept on tape in the building "
        "across the street.",
        "On which day is atlas-4 switched on?",
    ),
    (
        "The surgeon washed his hands in a solution of chlorinated lime before each birth, and "
        "the share of mothers who died of fever in his ward fell from one in ten to one in a "
        "hundred.",
        "What made it safer to have a baby?",
    ),
    (
        "The class `RingBuffer` keeps the last N readings of a sensor. Adding to a full buffer "
        "overwrites the oldest reading, and the method `mean` gives the average of what is there,"
        " or nothing while it is empty.",
        "What does adding to a full RingBuffer overwrite?",
    ),
    (
        "Copper roofs turn green over some twenty years as rain and air form a crust of salts on "
        "them. The crust protects the metal below, so that such a roof may last for three "
        "centuries.",
        "Why does a metal church top change its tint with age?",
    ),
    (
        "The expedition left Tromvik with three sledges and fourteen dogs. Doctor Lena Holm kept "
        "the diary; its last entry tells of open water to the east and of food for nine days.",
        "How many dogs did the expedition have?",
    ),
    (
        "Passwords are never stored. What is kept is a salted digest that takes a tenth of a "
        "second to compute, so that somebody who steals the table can try only a few guesses in a"
        " second.",
        "How are thieves slowed down who took the list of accounts?",
    ),
    (
        "The town of Merrow has two wells. The upper one was closed in 1903 after a cow fell into"
        " it, and the lower one still supplies the brewery, which pays the town a barrel of beer "
        "a month for it.",
        "What does the brewery pay for the well?",
    ),
    (
        "When two people change the same paragraph, the editor keeps both versions side by side "
        "and marks the place in the margin. Nobody's words are lost, and the text cannot be "
        "printed until one of them has been chosen.",
        "What becomes of our sentences if we both type in one spot at once?",
    ),
    (
        "Felt is made by wetting wool with hot soapy water and rolling it in a cloth. The fibres "
        "have scales that catch each other, so that the wool shrinks to a third of its size and "
        "cannot be pulled apart.",
        "To what share of its size does the wool shrink?",
    ),
    (
        "The bus to the airport leaves from platform 7 every twenty minutes, and every forty "
        "minutes after nine in the evening. Heavy cases go below; the driver opens the hatch only"
        " at the first and the last stop.",
        "How often can I ride to my plane late at night?",
    ),
    (
        "The parser accepts dates as year, month and day only. A date with two digits for the "
        "year is refused with the message E214, and a thirteenth month with the message E215.",
        "Which message refuses a thirteenth month?",
    ),
    (
        "Sound travels four times faster in water than in air. That is why a swimmer below the "
        "surface cannot tell from which side a boat is coming: it reaches both ears at nearly the"
        " same moment.",
        "Why do divers not hear where a ship is?",
    ),
    (
        "The museum's oldest map was drawn on calfskin by a monk named Orsin. It shows the river "
        "with two mouths, of which one has since filled with sand, and a forest where the railway"
        " yard is now.",
        "Who drew the museum's oldest map?",
    ),
    (
        "An alarm is raised if the temperature of the tank stays above 70 degrees for two "
        "minutes. A shorter peak is only written to the log, because opening the lid lets warm "
        "air pass the sensor.",
        "Why am I not warned at once when it gets too hot?",
    ),
)
"""A passage and a question whose answer stands in it."""
